"""`recordpublisher lag` for a job whose sink stores the positions: by the job's own properties."""

import asyncio
import json

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.host.build_from_properties import build_sink
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.lag.job_state import JobStateReader
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from fakes.commits.committing_sink import started
from processes.command_line import command

SHARD = "shardId-000000000000"
SINKS = {
    "sql": {"flink.sink.sql.uri": "sqlite:///{folder}/job.db", "flink.job.name": "job"},
    "jsonl": {"flink.sink.jsonl.path": "{folder}/rows"},
    "parquet": {"flink.sink.parquet.path": "{folder}/rows"},
}


def job_of(name, folder):
    return {"flink.sink": name, **{key: value.format(folder=folder) for key, value in SINKS[name].items()}}


def snapshot(sequence):
    state = ShardState(StartingPosition.trim_horizon(), SequenceNumber(sequence))
    return snapshot_to_json({f"orders/{SHARD}": state}, None, 1)


@pytest.mark.parametrize("name", SINKS)
async def test_the_positions_are_read_beside_the_running_job(name, tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        first, last = (endpoint.stream("orders").put(b"1", "key") for _ in range(2))
        job = {**endpoint.properties(), **job_of(name, tmp_path)}
        file = tmp_path / "job.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in job.items()))
        sink = build_sink(load_registry(), rp.Properties(job))
        started_job = await started(sink)

        for sequence, unread in ((first, True), (last, False)):
            await started_job.checkpoint(snapshot(sequence))  # FencedError, had `lag` opened the sink
            done = await asyncio.to_thread(command, "lag", "orders", "--properties", str(file), "--json")

            assert (done.returncode, done.stderr) == (0, "")
            line = json.loads(done.stdout)
            assert (line["shard"], line["worker"], line["unread"]) == (SHARD, started_job.life, unread)
        await sink.close()


async def test_a_job_that_stores_no_positions_is_told_in_a_sentence(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        file = tmp_path / "job.properties"
        job = {**endpoint.properties(), "flink.sink": "callback", "flink.streams": "orders"}
        file.write_text("".join(f"{key} = {value}\n" for key, value in job.items()))
        done = await asyncio.to_thread(command, "lag", str(file))

    assert done.returncode == 0
    assert done.stderr == (
        "recordpublisher: no positions are stored: each start misses the records that arrived since the last run; set flink.state.uri. "
        "The table shows what arrives in each shard\n"
    )
    assert "RECORDS/S" in done.stdout


async def test_a_file_that_only_says_how_to_reach_a_stream_is_no_job_without_positions(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        file = tmp_path / "local.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in endpoint.properties().items()))
        done = await asyncio.to_thread(command, "lag", "orders", "--properties", str(file))

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SINKS)
async def test_reading_creates_nothing(name, tmp_path):
    positions = JobStateReader(None, build_sink(load_registry(), rp.Properties(job_of(name, tmp_path))))

    assert await positions.load() == []
    await positions.close()
    assert list(tmp_path.iterdir()) == []


async def test_other_sinks_have_no_positions():
    assert await rp.MemorySink().stored_positions() is None
