"""The Kinesis sink as the sink of a job, from one stream of the embedded endpoint to another."""

import asyncio
import json
import shutil

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.sinks.kinesis import KinesisSink

from ..endpoint_records import UNPACED, assert_key_order, payloads, read_all
from fakes.batches import batch
from servers.kpl_aggregates import aggregate


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
async def test_as_the_sink_of_a_job_it_copies_a_stream(ordering):
    async with LocalKinesis(streams={"in": 2, "out": 3}) as endpoint:
        async with KinesisSink("in", {**endpoint.properties(), **UNPACED, "AggregationEnabled": True}) as source:
            for number in range(3_000):
                await source.put(str(number).encode(), f"key-{number % 97}", str(number % 97 * 2**120))
        given = {
            **endpoint.properties(),
            **UNPACED,
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.sink.kinesis.stream": "out",
            "flink.sink.kinesis.ordering": ordering,
            "AggregationEnabled": True,
        }
        sink = KinesisSink(given, queue_limit=700)
        async with rp.DataFetcher(["in"], given, sink=sink) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
            assert sink.metrics()["outstandingRecordsCount"] == 0
        records = await read_all(endpoint)
    assert sorted(payloads(records)) == list(range(3_000))
    assert all(int(one.shard_id[-1]) == int(one.data) % 97 * 2**120 * 3 // 2**128 for one in records)
    if ordering == "PER_KEY":
        assert_key_order(records)


async def test_a_denied_write_ends_the_job_at_once_and_not_at_its_next_checkpoint():
    async with LocalKinesis(streams={"in": 1, "out": 1}) as endpoint:
        endpoint.stream("in").put(b"1", "k")
        endpoint.faults.fail_next("PutRecords", "AccessDeniedException")
        start = {"flink.stream.initpos": "TRIM_HORIZON", "flink.state.checkpoint.interval": 3_600_000}
        given = {**endpoint.properties(), **start}

        async with asyncio.timeout(60), rp.DataFetcher(["in"], given, sink=KinesisSink("out", given)) as fetcher:
            with pytest.raises(rp.FatalKinesisError, match="PutRecords failed with AccessDeniedException"):
                await fetcher.run()


async def test_a_record_that_the_target_rejects_fails_the_job_or_goes_to_the_callback():
    failed = []
    async with LocalKinesis(streams={"in": 1, "out": 1}) as endpoint:
        endpoint.stream("in").max_record_bytes = 3 * 2**20
        async with KinesisSink("in", endpoint.properties()) as source:
            for data in (b"1", bytes(2 * 2**20), b"2"):
                await source.put(data, "k")
        given = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}

        async with rp.DataFetcher(["in"], given, sink=KinesisSink("out", given)) as fetcher:
            with pytest.raises(rp.SinkError, match="MaxRecordSizeInKiB"):
                await fetcher.run_bounded(stop_at_tip=True)
        sink = KinesisSink("out", given, fail_on_error=False, on_failure=failed.append)
        async with rp.DataFetcher(["in"], given, sink=sink) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
        assert {2} <= set(payloads(await read_all(endpoint)))
    assert [len(record.data) for record in failed] == [2 * 2**20]


async def test_s7_a_record_whose_retries_are_used_up_is_a_dead_letter_of_the_job(tmp_path):
    async with LocalKinesis(streams={"in": 1, "out": 1}) as endpoint:
        endpoint.stream("in").put(b"1", "k")
        endpoint.faults.fail_next("PutRecords", "InternalFailure", 1)
        given = {
            **endpoint.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.job.name": "copy",
            "flink.deserializer.error": "DEAD_LETTER",
            "flink.deadletter.sink": "jsonl",
            "flink.deadletter.jsonl.path": str(tmp_path),
            "flink.sink.kinesis.stream": "out",
            "flink.sink.kinesis.failonerror": "false",
            "flink.job.max.outage": 0,
        }
        async with rp.DataFetcher(["in"], given, sink=KinesisSink(given)) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
            (metrics,) = fetcher.metrics()["shards"].values()
        assert await read_all(endpoint) == []
    (letter,) = [json.loads(line) for file in tmp_path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert letter["value"] == {
        "error": "InternalFailure: PutRecords failed with InternalFailure: injected",
        "payload": "1",
    }
    assert metrics["deadLetters"] == 1


async def test_s7_a_flush_returns_when_the_dead_letters_of_what_it_covers_are_durable():
    begun, is_durable = asyncio.Event(), asyncio.Event()

    async def reject(rejected, is_logged):
        if rejected:
            begun.set()
            await is_durable.wait()

    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        endpoint.faults.fail_next("PutRecords", "InternalFailure", 1)
        given = {**endpoint.properties(), "flink.job.max.outage": 0}
        sink = KinesisSink("orders", given, fail_on_error=False)
        await sink.open(rp.SinkContext(has_dead_letters=True, reject_together=reject))
        await sink.write(batch(b"1"))
        flushing = asyncio.create_task(sink.flush(rp.Checkpoint({"shards": {"a": {}}})))
        await begun.wait()
        beside = asyncio.create_task(sink.flush(rp.Checkpoint({"shards": {"a": {}}})))
        await asyncio.sleep(0.05)
        assert not flushing.done()
        assert not beside.done()
        is_durable.set()
        assert await flushing == {"shards": {"a": {}}}
        await beside
        await sink.close()


async def test_s7_a_record_that_the_target_rejects_is_skipped_with_the_jobs_policy():
    part = (b"1", b"2", b"3")
    pill = aggregate(("k" * 257, part[0]), ("k", part[1], "9" * 4301), ("k", part[2], "007"))
    async with LocalKinesis(streams={"in": 1, "out": 1}) as endpoint:
        async with KinesisSink("in", endpoint.properties()) as source:
            await source.put(pill, "k")
        given = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON", "flink.deserializer.error": "SKIP"}

        async with rp.DataFetcher(["in"], given, sink=KinesisSink("out", given)) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
            (metrics,) = fetcher.metrics()["shards"].values()
        assert payloads(await read_all(endpoint)) == [2, 3]
    assert metrics["skippedRecords"] == 1


async def test_what_is_stored_while_the_target_is_slow_is_in_the_target(tmp_path):
    state, copy_of_state = tmp_path / "state", tmp_path / "copy"
    async with LocalKinesis(streams={"in": 2, "out": 1}) as endpoint:
        async with KinesisSink("in", {**endpoint.properties(), **UNPACED}) as source:
            for number in range(2_000):
                await source.put(str(number).encode(), f"key-{number}")
        given = {
            **endpoint.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.shard.getrecords.maxrecordcount": 200,
            "flink.state.checkpoint.interval": 100,
        }
        slow = KinesisSink("out", {**given, "RateLimit": 60}, queue_limit=600)
        async with rp.DataFetcher(["in"], {**given, "flink.state.uri": f"file://{state}"}, sink=slow) as fetcher:
            run = asyncio.create_task(fetcher.run())
            async with asyncio.timeout(60):
                while slow.metrics()["numRecordsOut"] < 1_000:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(shutil.copytree, state, copy_of_state)
            written = set(payloads(await read_all(endpoint)))
            assert slow.metrics()["outstandingRecordsCount"], "or the target is not slow"
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        rest = rp.MemorySink()
        async with rp.DataFetcher(
            ["in"], {**given, "flink.state.uri": f"file://{copy_of_state}"}, sink=rest
        ) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
    assert written | set(payloads(rest.records)) == set(range(2_000))
    assert len(rest.records) < 2_000, "no position was stored while there was always something to write"
