"""Every example of a command's help runs, and does what the help says."""

import json
import re
import subprocess
import sys

import pytest
import typer

from recordpublisher.cli.app import app

from processes.command_line import ROOT, process_environment


def examples():
    """Every example in the help of every command."""
    commands = [typer.main.get_command(app)]
    for one in commands:
        commands += getattr(one, "commands", {}).values()
        yield from re.findall(r"(?m)^\s*(?:Example: )?(recordpublisher .+)$", one.help or "")


EXAMPLES = [*examples()]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exit code, stdout and stderr of each example. One process runs them all: most of its time it would load the SDK."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "orders.jsonl").write_text('{"customer":7}\n{"customer":8}\n')
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/processes/command_examples.py")],
        cwd=folder,
        env=process_environment(AWS_REGION="us-east-1"),
        input=json.dumps(EXAMPLES),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(zip(EXAMPLES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(results, example):
    code, out, errors = results[example]

    assert code == 0, errors
    assert out or errors


def test_the_commands_that_reach_the_service_have_examples():
    assert {example.split()[1] for example in EXAMPLES} >= {"list", "describe", "put", "tail"}
