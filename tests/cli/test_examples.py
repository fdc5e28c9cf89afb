"""Every example of a command's help runs."""

import re

import pytest
import typer

from recordpublisher.cli.app import app

from processes.command_line import json_results


def examples():
    """Every example in the help of every command."""
    commands = [typer.main.get_command(app)]
    for one in commands:
        commands += getattr(one, "commands", {}).values()
        yield from re.findall(r"(?m)^\s*(?:Example: )?(recordpublisher .+)$", one.help or "")


EXAMPLES = [*examples()]
SERVICE_COMMANDS = ("list", "describe", "create", "split", "merge", "consumers", "put", "tail", "doctor")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exit code, stdout and stderr of each example. One process runs them all: most of its time it would load the SDK."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "orders.jsonl").write_text('{"customer":7}\n{"customer":8}\n')
    (folder / "job.properties").write_text("flink.streams=orders\nflink.sink=jsonl\nflink.sink.jsonl.path=rows\n")
    return dict(zip(EXAMPLES, json_results("command_examples", EXAMPLES, folder), strict=True))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(results, example):
    code, out, errors = results[example]

    assert code == 0, out + errors


def test_the_commands_that_reach_the_service_have_examples():
    assert {example.split()[1] for example in EXAMPLES} >= set(SERVICE_COMMANDS)
