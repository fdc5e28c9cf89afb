"""Every example of a command's help runs."""

import asyncio
import re

import pytest
import typer

from recordpublisher.cli.app import app
from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.fenced_state_stores import FileStateStore
from recordpublisher.publishers.positions import StartingPosition

from processes.command_line import json_results


def examples():
    """Every example in the help of every command."""
    commands = [typer.main.get_command(app)]
    for one in commands:
        commands += getattr(one, "commands", {}).values()
        yield from re.findall(r"(?m)^\s*(?:Example: )?(recordpublisher .+)$", one.help or "")


EXAMPLES = [*examples()]
SERVICE_COMMANDS = (
    "list",
    "describe",
    "create",
    "split",
    "merge",
    "consumers",
    "put",
    "tail",
    "doctor",
    "lag",
    "plugins",
)


async def _store_a_state(folder):
    """Of a job that has stored its first checkpoint, and has read nothing yet."""
    store = FileStateStore(folder)
    states = {f"orders/shardId-00000000000{number}": ShardState(StartingPosition.trim_horizon()) for number in (0, 1)}
    await store.store(0, await store.open_generation(0), snapshot_to_json(states, None, 1, 0, 1))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exit code, stdout and stderr of each example. One process runs them all: most of its time it would load the SDK."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "orders.jsonl").write_text('{"customer":7}\n{"customer":8}\n')
    (folder / "job.properties").write_text("flink.streams=orders\nflink.sink=jsonl\nflink.sink.jsonl.path=rows\n")
    asyncio.run(_store_a_state(folder / "state"))
    return dict(zip(EXAMPLES, json_results("command_examples", EXAMPLES, folder), strict=True))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(results, example):
    code, out, errors = results[example]

    assert code == 0, out + errors


def test_the_commands_that_reach_the_service_have_examples():
    assert {example.split()[1] for example in EXAMPLES} >= set(SERVICE_COMMANDS)
