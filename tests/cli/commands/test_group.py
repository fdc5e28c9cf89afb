"""`recordpublisher group`: commands run one after the other, on the group that an import has made and on none."""

import asyncio
import json

import pytest

from recordpublisher import Properties
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.plugins.stores.by_location import conditional_store_of

from processes.command_line import several_commands

WORKER_A = {"heartbeat": 5, "sentMs": 1, "host": "one", "pid": 7}
SHARDS = ["orders/shardId-000000000000", "orders/shardId-000000000001"]


async def make_group(store):
    """Worker `a` has both shards, and one of them is planned for `b`, which has none. `gone` is sealed."""
    group = GroupStore(store, 30)
    await group.write_table(LeaseTable(3, "a", leases={shard: Lease("a", 2) for shard in SHARDS}), None)
    for record in (
        WorkerRecord("a", beat=5, host="one", pid=7, sent_ms=1),
        WorkerRecord("b", beat=2),
        WorkerRecord("gone", 1, is_sealed=True),
    ):
        await group.own_record(record.worker).write(record)
    await store.close()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exit code, stdout and stderr of each command, in order."""
    folder = tmp_path_factory.mktemp("job")
    uri = f"sqlite:///{folder}/group.db"
    asyncio.run(make_group(conditional_store_of(uri, "uri", Properties({"flink.job.name": "orders"}))))
    job, other = folder / "job.properties", folder / "other.properties"
    job.write_text(f"flink.job.name=orders\nflink.state.uri={uri}")
    other.write_text(f"flink.job.name=other\nflink.state.uri={uri}")
    elsewhere, nothing = folder / "elsewhere.properties", folder / "nothing.properties"
    elsewhere.write_text(f"{job.read_text()}\nflink.sink=sink-of-another-machine")
    nothing.write_text(f"{other.read_text()}\nflink.sink=sink-of-another-machine")
    without = folder / "without.properties"
    without.write_text("flink.job.name=orders")
    beside = folder / "beside.properties"
    of_rows = f"flink.job.name=orders\nflink.sink=sql\nflink.sink.sql.uri=sqlite:///{folder}/rows.db"
    beside.write_text(of_rows)
    asyncio.run(make_group(SqlSink(Properties(dict(line.split("=", 1) for line in of_rows.split()))).entries()))
    commands = {
        "show": ["show", str(job)],
        "show --json": ["show", str(job), "--json"],
        "sink elsewhere": ["show", str(elsewhere)],
        "no group, sink elsewhere": ["show", str(nothing)],
        "no group": ["show", str(other)],
        "no store": ["show", str(without)],
        "no such worker": ["drain", str(job), "c"],
        "drain": ["drain", str(job), "b", "--wait", "0.1"],
        "drain --force": ["drain", str(job), "a", "--force"],
        "show after": ["show", str(job)],
        "beside rows": ["show", str(beside)],
    }
    with serve_in_thread(streams={"orders": 2}) as endpoint:
        done = several_commands(endpoint, *(["group", *command] for command in commands.values()))
    return dict(zip(commands, done, strict=True))


def rows(done):
    return [line.split("  ") for line in done.stdout.splitlines()]


def test_workers_and_shards_are_shown_and_what_moves(results):
    done = results["show"]
    assert (done.returncode, done.stderr) == (0, "")
    days = done.stdout.splitlines()[1].split("  ")[-1].strip()
    assert days.endswith(" d ago")
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows(done)] == [
        ["WORKER", "STATE", "HOST (PROCESS)", "SHARDS", "SHARE", "LAST HEARTBEAT"],
        ["a", "active", "one (7)", "2", "100%", days],
        ["b", "active", "-", "0", "0%", "-"],
        ["gone", "sealed", "-", "0", "0%", "-"],
        [],
        ["SHARD", "WORKER", "STATE", "BYTES/S", "MOVES TO"],
        [SHARDS[0], "a", "owned", "at most 1,000", "b"],
        [SHARDS[1], "a", "owned", "at most 1,000", "-"],
    ]


def test_as_json_each_worker_and_shard_is_a_line(results):
    lines = [json.loads(line) for line in results["show --json"].stdout.splitlines()]
    assert lines[0] == {"worker": "a", "state": "active", "shards": 2, "share": 1.0} | WORKER_A
    assert lines[3] == {
        "shard": SHARDS[0],
        "stage": "owned",
        "worker": "a",
        "epoch": 2,
        "load": None,
        "nextWorker": "b",
    }


def test_a_job_without_a_group_is_an_error(results):
    assert results["no group"].returncode == 1
    assert "has no group of workers: was the job started with `run --group`?" in results["no group"].stderr


def test_a_group_whose_lease_table_is_beside_the_rows_of_its_sink_is_shown(results):
    assert results["beside rows"].returncode == 0, results["beside rows"].stderr
    assert results["beside rows"].stdout == results["show"].stdout


def test_a_group_with_a_store_is_shown_where_its_sink_is_not_installed(results):
    assert results["sink elsewhere"].returncode == 0, results["sink elsewhere"].stderr
    assert results["sink elsewhere"].stdout == results["show"].stdout
    assert "has no group of workers" in results["no group, sink elsewhere"].stderr


def test_properties_without_a_store_are_an_error(results):
    assert results["no store"].returncode == 2
    assert "property 'flink.state.uri' is required: a group keeps its leases there" in results["no store"].stderr


def test_a_worker_that_is_not_there_is_an_error(results):
    assert results["no such worker"].returncode == 1
    assert "worker c is not in the group, whose workers are: a, b" in results["no such worker"].stderr


def test_a_worker_is_asked_to_leave(results):
    assert results["drain"].returncode == 1
    told = results["drain"].stdout
    assert told.startswith(
        "worker b was asked to leave, and has not left yet: it was asked 0.1 s ago, and receives the request "
    )
    assert ["b", "asked to leave"] in [
        [cell.strip() for cell in row if cell.strip()][:2] for row in rows(results["show after"])
    ]


def test_a_worker_is_sealed_at_once(results):
    assert (results["drain --force"].returncode, results["drain --force"].stdout) == (0, "worker a has left\n")
    assert ["a", "sealed"] in [
        [cell.strip() for cell in row if cell.strip()][:2] for row in rows(results["show after"])
    ]
