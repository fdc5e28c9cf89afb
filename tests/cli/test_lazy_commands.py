"""LazyCommands: one command does not pay for the imports of the others."""

import subprocess
import sys

import pytest
import typer

from recordpublisher.cli.app import COMMANDS, app

from processes.command_line import process_environment


def modules_after(statement):
    script = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=process_environment(), capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_group_imports_no_command():
    loaded = modules_after("import typer.main; from recordpublisher.cli.app import app; typer.main.get_command(app)")

    assert loaded & {f"recordpublisher.cli.{place.partition(':')[0]}" for place in COMMANDS.values()} == set()


def test_a_command_imports_itself_only():
    start = "import typer.main; from recordpublisher.cli.app import app; typer.main.get_command(app).commands['local']"

    assert {name for name in modules_after(start) if name.startswith("recordpublisher.cli.commands.")} == {
        "recordpublisher.cli.commands.local"
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_name_it_is_listed_with(name):
    assert typer.main.get_command(app).commands[name].name == name


def test_the_endpoint_loads_neither_sdk_nor_client():
    loaded = modules_after("from recordpublisher.local import LocalKinesis; import recordpublisher.local.server")

    assert loaded & {"botocore", "boto3", "aiobotocore", "recordpublisher.publishers.kinesis"} == set()
