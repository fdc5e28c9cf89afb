"""Every example of a command's help runs."""

import asyncio
import re
import signal
import time

import pytest
import typer

from recordpublisher.cli.app import app
from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import serve_in_thread
from recordpublisher.local.schedules.schedule import load_schedule
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.positions import StartingPosition

from fakes.stored_job import store_alone
from processes.command_line import json_results, process_environment, sdk_environment
from processes.forked.command import PipedCommand


def examples():
    """Every example in the help of every command."""
    commands = [typer.main.get_command(app)]
    for one in commands:
        commands += getattr(one, "commands", {}).values()
        yield from re.findall(r"(?m)^\s*(?:Example: )?(recordpublisher .+)$", one.help or "")


INTERRUPTED = 130
"""Of a command that was broken off, as shells say it."""
UNTIL_STOPPED = ("dashboard", "demo", "local", "run")
ALL = sorted(examples(), key=lambda example: "replay job.properties --to" in example)
"""The replay of all comes last: it leaves no dead letters."""
EXAMPLES = [each for each in ALL if each.split()[1] not in UNTIL_STOPPED and "--watch" not in each]
RUNNING = [
    pytest.param(each, marks=[pytest.mark.spark] if each.split()[1] == "demo" else [], id=each)
    for each in ALL
    if each not in EXAMPLES
]
SERVICE_COMMANDS = (
    "list",
    "describe",
    "create",
    "delete",
    "split",
    "merge",
    "consumers",
    "put",
    "tail",
    "doctor",
    "lag",
    "positions",
    "group",
    "plugins",
)


JOB = "flink.streams=orders\nflink.sink=jsonl\nflink.sink.jsonl.path=rows\n"
JOB_WITH_STATE = (
    "flink.streams=orders\nflink.sink=map\nflink.sink.map.function=builtins:repr\nflink.state.uri=state\n"
    "flink.deadletter.sink=jsonl\nflink.deadletter.jsonl.path=letters\n"
)
LETTER = (
    '{"stream":"orders","shardId":"shardId-0","sequenceNumber":"49590338271490256608559692538361571095921575989136588898",'
    '"subSequenceNumber":-1,"partitionKey":"k","approximateArrivalTimestamp":"2026-11-26T06:00:00+00:00",'
    '"value":{"error":"no JSON","payload":"{"}}\n'
)
MENDED = '{"shard":"orders/shardId-0","sequenceNumber":"49590338271490256608559692538361571095921575989136588899","payload":"{}"}\n'
"""Of the second letter."""


async def _store_a_state(folder):
    """Of a job that has stored its first checkpoint, and has read nothing yet."""
    states = {f"orders/shardId-00000000000{number}": ShardState(StartingPosition.trim_horizon()) for number in (0, 1)}
    alone = await store_alone(FolderStore(folder), snapshot_to_json(states, None, 1))
    await alone.close()


async def _store_a_group(folder):
    """Of a worker without shards."""
    group, worker = GroupStore(FolderStore(folder), 30), "5f0c2ab94d1e6f37"
    await group.write_table(LeaseTable(1, worker), None)
    await group.own_record(worker).write(WorkerRecord(worker, 1))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exit code, stdout and stderr of each example. One process runs them all: most of its time it would load the SDK."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "orders.jsonl").write_text('{"customer":7}\n{"customer":8}\n')
    (folder / "job.properties").write_text(JOB_WITH_STATE)
    (folder / "local.properties").write_text("aws.region=us-east-1\n")
    letters = folder / "letters/orders/shardId-0"
    letters.mkdir(parents=True)
    (letters / "first-last.jsonl").write_text(LETTER + LETTER.replace("136588898", "136588899"))
    (folder / "mended.jsonl").write_text(MENDED)
    numbers = range(load_schedule("outage").record_count)
    (folder / "records.txt").write_text("".join(f"{number} {time.time():.3f}\n" for number in numbers))
    asyncio.run(_store_a_state(folder / "state"))
    asyncio.run(_store_a_group(folder / "group"))
    return dict(zip(EXAMPLES, json_results("command_examples", EXAMPLES, folder), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(results, example):
    code, out, errors = results[example]

    assert code == 0, out + errors


def wait_until_it_runs(name, process, folder):
    """Return when a command that runs until it is stopped does what it is for, and a signal ends it in order."""
    if name == "run":
        while not list(folder.glob("rows/.recordpublisher/*")):  # of the opened sink
            assert process.poll() is None
            time.sleep(0.01)
    else:
        assert (process.stdout if name == "lag" else process.stderr).readline()


@pytest.mark.slow
@pytest.mark.parametrize("example", RUNNING)
def test_an_example_runs_until_it_is_stopped(example, tmp_path):
    (tmp_path / "job.properties").write_text(JOB)
    (tmp_path / "token").write_text("0123456789abcdef")
    _, name, *arguments = example.split()
    with serve_in_thread(streams={"orders": 1}) as served:
        process = PipedCommand(
            name, *arguments, environment=process_environment(**sdk_environment(served)), folder=tmp_path
        )
        with process:
            try:
                wait_until_it_runs(name, process, tmp_path)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()

    assert process.returncode == (INTERRUPTED if name == "demo" else 0), errors
    assert "Traceback" not in errors


def helps():
    """The help of every command and group, by its name."""
    waiting = [("recordpublisher", typer.main.get_command(app))]
    while waiting:
        name, one = waiting.pop()
        waiting += [(f"{name} {each}", command) for each, command in getattr(one, "commands", {}).items()]
        yield name, one.help or ""


def test_every_help_has_an_example():
    assert [name for name, text in helps() if "Example: recordpublisher " not in text] == []


def test_every_command_has_an_example():
    assert {example.split()[1] for example in ALL} >= {*SERVICE_COMMANDS, *UNTIL_STOPPED}
