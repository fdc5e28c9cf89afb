"""`doctor` names another process that runs the same job, and takes nothing from it."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.job import JobChecks
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.host.manager import load_registry

INTERVAL = {"flink.state.checkpoint.interval": 100}


async def checked(properties):
    """The verdict and words about the store and about other processes."""
    async with AsyncExitStack() as made:
        checks = JobChecks(load_registry(), rp.Properties(properties), made)
        store, *_ = await checks.store_findings()
        running = await checks.running_finding()
    return store, running


@asynccontextmanager
async def job(endpoint, sink=None, **properties):
    """A job that runs, and its properties. It must still be running at the end."""
    given = {**endpoint.properties(), **INTERVAL, "flink.stream.initpos": "TRIM_HORIZON", **properties}
    async with rp.DataFetcher(["orders"], given, sink=sink) as fetcher:
        running = asyncio.create_task(fetcher.run())
        for _ in range(6_000):  # a minute
            if len(fetcher.metrics()["shards"]) == len(endpoint.stream("orders").shards):
                break
            await asyncio.sleep(0.01)
        yield given
        assert not running.done()
        fetcher.stop()
        await running


def places(tmp_path):
    return {
        "folder": {"flink.state.uri": str(tmp_path / "state"), "flink.sink": "memory"},
        "rows": {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")},
        "database": {
            "flink.sink": "sql",
            "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db",
            "flink.sink.sql.table": "orders",
            "flink.job.name": "billing",
        },
    }


@pytest.mark.parametrize("place", ["folder", "rows", "database"])
async def test_a_job_that_runs_is_named_and_goes_on(place, tmp_path):
    async with (
        LocalKinesis(streams={"orders": 1}) as endpoint,
        job(endpoint, **places(tmp_path)[place]) as properties,
    ):
        _, running = await checked(properties)

    assert running.verdict == "PROBLEM"
    assert running.words.startswith("subtask 0 of generation 1 stores checkpoints: a start here would fence it off")


async def test_a_job_that_has_stopped_is_not_running(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        async with job(endpoint, **places(tmp_path)["folder"]) as properties:
            pass
        store, running = await checked(properties)

    assert (store.verdict, store.words) == ("ok", "reachable, 1 stored snapshots")
    assert running.verdict == "ok"
    assert running.words == "no: generation 1 has stored nothing for 1.1 s; a start takes 2"


async def test_a_job_without_checkpoints_in_between_is_not_known_to_run(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        async with job(endpoint, **places(tmp_path)["folder"]) as properties:
            pass
        _, running = await checked({**properties, "flink.state.checkpoint.interval": -1})

    assert running.verdict == "not checked"
    assert running.words.endswith("flink.state.checkpoint.interval is -1")


@pytest.mark.parametrize("sink", ["memory", "jsonl"])
async def test_a_worker_of_a_group_is_named_and_keeps_its_shards(sink, tmp_path):
    group = {
        "flink.shard.assignment": "ELASTIC",
        "flink.state.uri": str(tmp_path / "state"),
        "flink.lease.duration": 3_000,
        "flink.sink": sink,
        "flink.sink.jsonl.path": str(tmp_path / "rows"),
    }
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        async with job(endpoint, **group) as properties:
            store, running = await checked(properties)
        _, later = await checked(properties)
        static, _ = await checked({**properties, "flink.shard.assignment": "STATIC"})

    assert (store.verdict, store.words) == ("ok", "a group with 2 shards and 1 workers")
    assert running.verdict == "ok"
    assert running.words.startswith("yes: worker ")
    assert running.words.endswith("(2 shards); a start here joins, and takes its share")
    assert later.words == "no: no worker of the group sends heartbeats"
    assert static.verdict == "PROBLEM"
    assert "flink.shard.assignment=ELASTIC, and STATIC does not go on from these" in static.words


async def test_a_group_cannot_begin_where_subtasks_keep_their_positions(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        async with job(endpoint, **places(tmp_path)["folder"]) as properties:
            pass
        store, running = await checked({**properties, "flink.shard.assignment": "ELASTIC"})

    assert store.verdict == "PROBLEM"
    assert "flink.shard.assignment=STATIC, and ELASTIC does not go on from these" in store.words
    assert running.verdict == "not checked"


async def test_a_folder_that_a_group_cannot_write_is_a_problem():
    store, _ = await checked({"flink.shard.assignment": "ELASTIC", "flink.state.uri": __file__, "flink.sink": "memory"})

    assert store.verdict == "PROBLEM"
    assert "valid: a folder that this user can write" in store.words
