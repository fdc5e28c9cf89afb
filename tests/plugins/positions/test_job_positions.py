"""Where a job has its positions: in its sink, its state store, or both."""

import asyncio
import json

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.positions.job_positions import JobPositions
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

SHARD = "orders/shardId-000000000000"


def state(sequence):
    return ShardState(StartingPosition.trim_horizon(), SequenceNumber(sequence))


def use(properties, work):
    async def run():
        job = JobPositions(rp.Properties(properties))
        try:
            return await work(job)
        finally:
            await job.close()

    return asyncio.run(run())


def test_what_is_stored_is_loaded(tmp_path):
    properties = {"flink.state.uri": str(tmp_path / "state"), "flink.sink": "memory"}

    async def work(job):
        await job.store({SHARD: state("17")})
        return (await job.load()).merged.shards

    assert use(properties, work) == {SHARD: state("17")}


def test_what_is_stored_later_is_newer(tmp_path):
    properties = {"flink.state.uri": str(tmp_path / "state")}
    use(properties, lambda job: job.store({SHARD: state("17")}))
    use(properties, lambda job: job.store_over({SHARD: state("3")}))
    assert use(properties, JobPositions.load).merged.shards == {SHARD: state("3")}


def test_loading_creates_no_folder(tmp_path):
    assert not use({"flink.state.uri": str(tmp_path / "state")}, JobPositions.load).merged.shards
    assert not (tmp_path / "state").exists()


def test_the_positions_of_a_sink_are_read_and_written_where_it_has_them(endpoint, stream, job, tmp_path):
    endpoint.stream(stream).put(1, 2, key="a")
    rows = {"flink.state.uri": None, "flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")}
    given = job.merged(rows)

    async def run():
        async with rp.DataFetcher([stream], given) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True, max_time=60)

    asyncio.run(run())
    found = use(given, JobPositions.load)
    assert {key.partition("/")[0] for key in found.in_store.shards} == {stream}
    assert not found.in_sink.shards
    use(given, lambda job: job.store({SHARD: state("17")}))
    assert use(given, JobPositions.load).merged.shards == {SHARD: state("17")}


def test_the_place_is_named_without_the_password():  # C3
    uri = "postgresql://me:hunter2@127.0.0.1/shop"
    assert JobPositions(rp.Properties({"flink.state.uri": uri})).place == "postgresql://me:******@127.0.0.1/shop"


def test_a_job_without_any_place_is_refused():
    with pytest.raises(rp.ConfigurationError, match=r"flink.state.uri.*the sink keeps no positions"):
        JobPositions(rp.Properties({"flink.sink": "memory"}))


def test_the_positions_of_a_group_are_stored_and_loaded(tmp_path):
    given = {"flink.job.workers": "GROUP", "flink.state.uri": str(tmp_path / "state"), "flink.job.name": "a"}
    use(given, lambda job: job.store({SHARD: state("17")}))

    assert use(given, JobPositions.load).merged.shards == {SHARD: state("17")}
    with pytest.raises(rp.StateError, match="a group of workers already"):
        use(given, lambda job: job.store({SHARD: state("3")}))


@pytest.mark.parametrize("workers", ["ALONE", "GROUP"])
@pytest.mark.parametrize(
    "work",
    [JobPositions.load, lambda job: job.store({SHARD: state("3")}), lambda job: job.store_over({SHARD: state("3")})],
    ids=["load", "store", "store_over"],
)
def test_the_positions_of_a_job_with_another_name_are_neither_shown_nor_replaced(
    endpoint, stream, job, tmp_path, work, workers
):
    endpoint.stream(stream).put(1, 2, key="a")
    own = {"flink.state.uri": str(tmp_path / "state"), "flink.sink": "memory", "flink.job.name": "a"}
    given = job.merged({**own, "flink.job.workers": workers})

    async def run():
        async with rp.DataFetcher([stream], given) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True, max_time=5)

    asyncio.run(run())
    before = use(given, JobPositions.load).merged.shards
    assert before

    with pytest.raises(rp.StateError, match="has the positions of job 'a', and this is job 'b'"):
        use(given.merged({"flink.job.name": "b"}), work)
    assert use(given, JobPositions.load).merged.shards == before


@pytest.mark.parametrize("workers", ["ALONE", "GROUP"])
def test_imported_positions_belong_to_the_job_for_which_they_were_imported(endpoint, stream, job, tmp_path, workers):
    endpoint.stream(stream).put(1, 2, key="a")
    own = {"flink.state.uri": str(tmp_path / "state"), "flink.sink": "memory", "flink.job.name": "a"}
    given = job.merged({**own, "flink.job.workers": workers})
    use(given, lambda job: job.store({f"{stream}/shardId-000000000000": ShardState(StartingPosition.trim_horizon())}))

    async def run(properties, sink):
        async with rp.DataFetcher([stream], properties, sink=sink) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True, max_time=5)

    with pytest.raises(rp.StateError, match="has the positions of job 'a', and this is job 'b'"):
        asyncio.run(run(given.merged({"flink.job.name": "b"}), rp.MemorySink()))
    asyncio.run(run(given, sink := rp.MemorySink()))
    assert len(sink.records) == 2
    (table,) = (tmp_path / "state" / "group" / "leases.versions").glob("value-*")
    stored = json.loads(table.read_text())
    assert stored["job"]["name"] == "a"
    assert stored["job"]["sink"]


@pytest.mark.parametrize("workers", ["ALONE", "GROUP"])
def test_a_run_without_a_name_does_not_give_the_positions_of_a_job_to_others(stream, job, tmp_path, workers):
    own = job.merged({"flink.state.uri": str(tmp_path / "state"), "flink.job.workers": workers})

    async def run(properties, sink):
        async with rp.DataFetcher([stream], properties, sink=sink) as fetcher:
            await fetcher.run_bounded(max_time=1)

    asyncio.run(run(own.merged({"flink.job.name": "a"}), "memory"))
    asyncio.run(run(own, rp.MapSink(print)))  # another destination, so a group takes this job for its own
    with pytest.raises(rp.StateError, match="has the positions of job 'a', and this is job 'b'"):
        asyncio.run(run(own.merged({"flink.job.name": "b"}), "memory"))
