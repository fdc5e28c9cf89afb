"""All commands: exit codes, and one line for each error."""

import json
import os
import subprocess
import sys

import pytest
import typer

import recordpublisher as rp
from recordpublisher.cli.app import COMMANDS, app
from recordpublisher.install_commands import install_command

from processes.command_line import command, process_environment

PAIR = "Valid: KEY=VALUE, for example aws.region=eu-west-1"
BAD = {
    "tail x -p aws.region": f"option '-p' is 'aws.region'. {PAIR}",
    "tail x -p =b": f"option '-p' is '=b'. {PAIR}",
    "tail x -p my.password:s3cr3t": f"option '-p' is '******'. {PAIR}",
    "tail x -p acme.handshake:s3cr3t": f"option '-p' is '******'. {PAIR}",
    "tail x --properties nowhere.properties": (
        "setting 'file' is 'nowhere.properties': No such file or directory. "
        "Valid: a readable Java properties file in UTF-8"
    ),
    "local --stream orders": (
        "option '--stream' is 'orders'. "
        "Valid: NAME:SHARDS with at least one shard, each name once, for example orders:4"
    ),
}


@pytest.mark.parametrize(("arguments", "line"), BAD.items())
def test_bad_configuration_is_one_line_on_stderr_and_exit_code_2(arguments, line):
    done = command(*arguments.split())

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"recordpublisher: {line}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"), [("properties >&-", 0), ("put orders -p aws.region <&-", 2), ("plugins 2>&-", 0)]
)
def test_a_standard_stream_that_is_closed_is_no_traceback(line, code):
    shell = ["sh", "-c", f"exec {sys.executable} -m recordpublisher {line}"]
    done = subprocess.run(shell, env=process_environment(), capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_judge_reads_nothing_from_a_closed_standard_input():
    shell = ["sh", "-c", f"exec {sys.executable} -m recordpublisher judge --schedule reshards <&-"]
    done = subprocess.run(shell, env=process_environment(), capture_output=True, text=True, timeout=60, check=False)

    assert "records: " in done.stdout


def test_parallelism_has_a_limit():
    done = command("run", "job.properties", "--parallelism", "1000000000")

    assert done.returncode == 2
    assert "less than or equal to 1000" in " ".join(done.stderr.split())


def test_debug_shows_the_traceback():
    done = command("--debug", "tail", "x", "-p", "foo")

    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "ConfigurationError: option '-p'" in done.stderr


def test_debug_is_understood_after_the_command_too():
    assert "Traceback" in command("tail", "x", "-p", "foo", "--debug").stderr


def leaves(command):
    """The commands at or below one, without the groups."""
    below = getattr(command, "commands", {}).values()
    return [leaf for one in below for leaf in leaves(one)] or [command]


@pytest.mark.parametrize("one", leaves(typer.main.get_command(app)), ids=lambda one: one.name)
def test_every_command_takes_the_options_of_all(one):
    usage = one.get_help(one.context_class(one))

    assert "-v, --verbose" in usage
    assert "--debug" in usage
    assert "--log-format" in usage


def test_with_json_logs_an_error_is_a_json_object():
    done = command("tail", "x", "-p", "foo", "--log-format", "json")

    entry = json.loads(done.stderr)
    assert (done.returncode, entry["level"]) == (2, "ERROR")
    assert entry["message"] == f"option '-p' is 'foo'. {PAIR}"


def test_the_version_is_shown_without_a_command():
    assert command("--version").stdout.startswith(f"recordpublisher {rp.__version__}, Python 3.")


def test_h_is_help():
    assert command("tail", "-h").stdout == command("tail", "--help").stdout


def test_help_lists_the_commands():
    done = command("--help")

    assert done.returncode == 0
    assert all(name in done.stdout for name in ("local", "tail", "plugins", "properties"))


def test_an_unknown_command_is_bad_configuration():
    assert command("unknown").returncode == 2


@pytest.mark.parametrize("arguments", [("properties",), ("properties", "--json"), ("plugins",)])
def test_a_closed_pipe_ends_the_command_without_an_error(arguments):
    read_end, output = os.pipe()
    os.close(read_end)
    with os.fdopen(output, "wb") as stdout:
        done = command(*arguments, stdout=stdout.fileno())

    assert (done.returncode, done.stderr) == (0, "")


def test_without_typer_the_error_names_the_extra():
    hide = "import sys; sys.modules['typer'] = None; import recordpublisher.__main__ as m; m.find_spec = lambda name: None; m.main()"
    done = subprocess.run(
        [sys.executable, "-c", hide], env=process_environment(), capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr == f"recordpublisher: the command line needs the extra 'cli': {install_command('cli')}\n"


def test_in_a_terminal_an_error_is_followed_by_the_name_of_its_page(monkeypatch, capsys):
    from recordpublisher.cli.app import app

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        app(["tail", "x", "-p", "foo"])

    assert capsys.readouterr().err.endswith("See reference/errors#configurationerror in the documentation\n")


def test_help_is_as_wide_as_the_terminal():
    help_text = command("lag", "--help", COLUMNS="118").stdout

    assert 100 < max(map(len, help_text.splitlines())) <= 118


@pytest.mark.slow
def test_a_shell_completes_commands():
    asked = {"_RECORDPUBLISHER_COMPLETE": "complete_bash", "COMP_WORDS": "recordpublisher la", "COMP_CWORD": "1"}
    program = "import sys; sys.argv[0] = 'recordpublisher'; from recordpublisher.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=process_environment(**asked), capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["lag"]


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
