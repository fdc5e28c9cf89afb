"""What `doctor` says about a job's store, sink and lag."""

import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.job import job_findings
from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import LocalKinesis, ManualClock
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition


async def found(endpoint, **properties):
    """The verdict and words of each check by its name."""
    job = rp.Properties({**endpoint.properties(), **properties})
    async with KinesisClient(job) as client:
        return {
            each.name: (each.verdict.value, each.words)
            for each in await job_findings(load_registry(), job, ["orders"], client)
        }


async def test_a_job_before_its_first_start(tmp_path):
    sink = {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, **sink, **{"flink.state.uri": str(tmp_path / "state")})

    assert checked["sink"][0] == "ok"
    assert checked["store"][0] == checked["orders: lag"][0] == "not checked"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("properties", "name", "remedy"),
    [
        ({"flink.sink": "jsnl"}, "sink", "jsonl"),
        ({"flink.state.uri": __file__}, "store", "a folder that this user can write"),
        ({"flink.state.uri": "pigeon://x"}, "store", "no state store of that name is installed"),
    ],
)
async def test_a_store_or_sink_that_cannot_be_used(properties, name, remedy):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        verdict, words = (await found(endpoint, **properties))[name]

    assert verdict == "PROBLEM"
    assert remedy in words


@pytest.mark.parametrize(("age_hours", "verdict"), [(1, "ok"), (22, "PROBLEM")])
async def test_the_time_until_unread_records_are_lost(tmp_path, age_hours, verdict):
    clock = ManualClock(SystemClock().now_ms() - age_hours * 3_600_000)
    store = rp.FileStateStore(tmp_path / "state")
    async with LocalKinesis(streams={"orders": 1}, clock=clock) as endpoint:
        done, _ = (endpoint.stream("orders").put(data, "k") for data in (b"read", b"unread"))
        state = ShardState(StartingPosition.trim_horizon(), SequenceNumber(done))
        snapshot = snapshot_to_json({"orders/shardId-000000000000": state}, None, 1, 0, 1)
        await store.store(0, await store.open_generation(0), snapshot)
        clock.advance(age_hours * 3_600_000)
        sink = {"flink.sink": "kinesis", "flink.sink.kinesis.stream": "orders"}
        checked = await found(endpoint, **sink, **{"flink.state.uri": str(tmp_path / "state")})

    assert checked["store"] == ("ok", "1 stored snapshots")
    assert checked["orders: lag"][0] == verdict
    assert ("start the job now, or increase the retention" in checked["orders: lag"][1]) is (verdict == "PROBLEM")
