"""The Kinesis sink against the embedded endpoint, on real sockets."""

import asyncio
import itertools
from enum import StrEnum
from functools import partial

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis, Quotas
from recordpublisher.local.stream import merge, split
from recordpublisher.plugins.sinks.kinesis import KinesisSink

from .endpoint_records import UNPACED, assert_key_order, payloads, read_all


async def put_numbers(sink, numbers, keys=97):
    for number in numbers:
        await sink.put(str(number).encode(), f"key-{number % keys}")


async def test_records_arrive_with_their_keys_signed_and_whole():
    credentials = {"key-id": "secret"}
    async with LocalKinesis(streams={"out": 2}, credentials=credentials) as endpoint:
        async with KinesisSink("out", {**endpoint.properties(), **UNPACED}) as sink:
            await sink.put(b"", "empty")
            await sink.put(bytes(range(256)), "ключ", "17")
            await sink.flush()  # later calls use the fast path
            await sink.put(bytearray(b"3"), "k")
        read = {record.partition_key: record.data for record in await read_all(endpoint)}
    assert read == {"empty": b"", "ключ": bytes(range(256)), "k": b"3"}


class Country(StrEnum):
    DE = "de"


class Payload(bytes):
    """A class of a user."""


async def test_a_text_or_payload_of_a_class_of_the_user_is_put_as_what_it_is():
    async with LocalKinesis(streams={"out": 1}) as endpoint:
        async with KinesisSink("out", endpoint.properties()) as sink:
            for _ in range(2):
                await sink.put(Payload(b"x"), Country.DE)
                await sink.flush()  # the second call uses the fast path
        assert [(each.partition_key, each.data) for each in await read_all(endpoint)] == [("de", b"x")] * 2


async def test_the_explicit_hash_key_decides_the_shard():
    async with LocalKinesis(streams={"out": 2}) as endpoint:
        async with KinesisSink("out", endpoint.properties()) as sink:
            for number in range(20):
                await sink.put(b"x", f"key-{number}", str(2**128 - 1 - number))
        shards = {record.shard_id for record in await read_all(endpoint)}
    assert shards == {"shardId-000000000001"}


@pytest.mark.parametrize("aggregated", [False, True])
async def test_k2_partial_failures_are_retried_entry_by_entry(aggregated):
    async with LocalKinesis(streams={"out": 3}) as endpoint:
        given = {**endpoint.properties(), **UNPACED, "AggregationEnabled": aggregated, "AggregationMaxSize": 500}
        async with KinesisSink("out", given) as sink:
            endpoint.faults.fail_entries(40)
            endpoint.faults.fail_entries(40, code="InternalFailure")
            await put_numbers(sink, range(3_000))
            await sink.flush()
            metrics = sink.metrics()
        read = payloads(await read_all(endpoint))
    assert sorted(read) == list(range(3_000))
    assert metrics["resentRecords"] == 80
    assert metrics["throttles"] == 40


@pytest.mark.parametrize(("size", "count"), [(20, 2_500), (20_000, 130)])
async def test_k2_a_shard_that_is_written_to_too_fast_takes_every_record_in_the_end(size, count):
    """1,000 records and 1 MiB a second for a shard (service limits), and a writer that does not keep to them."""
    async with LocalKinesis(streams={"out": 1}, quotas=Quotas.service()) as endpoint:
        async with KinesisSink("out", {**endpoint.properties(), **UNPACED}) as sink:
            for number in range(count):
                await sink.put(str(number).encode().rjust(size), "k")
            async with asyncio.timeout(60):  # the time is tested on virtual time
                await sink.flush()
            metrics = sink.metrics()
        endpoint.account.throttle = None
        read = payloads(await read_all(endpoint))
    assert sorted(read) == list(range(count))
    assert metrics["throttles"] > 0


async def test_a_writer_within_the_rate_limit_is_never_throttled():
    async with (
        LocalKinesis(streams={"out": 2}, quotas=Quotas.service()) as endpoint,
        KinesisSink("out", endpoint.properties()) as sink,
    ):
        await put_numbers(sink, range(4_000))
        await sink.flush()
        metrics = sink.metrics()
    assert metrics["throttles"] == 0


@pytest.mark.parametrize("aggregated", [False, True])
async def test_k4_a_reshard_while_writing_loses_nothing_and_keeps_the_order_of_keys(aggregated):
    async with LocalKinesis(streams={"out": 1}) as endpoint:
        stream = endpoint.stream("out")
        given = {**endpoint.properties(), **UNPACED, "AggregationEnabled": aggregated}
        async with KinesisSink("out", given, ordering="PER_KEY") as sink:
            await put_numbers(sink, range(500))
            for number in range(500, 3_000):
                await sink.put(str(number).encode(), f"key-{number % 97}")
                if number in (1_000, 1_800):
                    await sink.flush()
                    _split_first(stream)
                if number == 2_400:
                    _merge_last(stream)
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
            await sink.flush()
            async with asyncio.timeout(60):
                while (metrics := sink.metrics())["shards"] != 2:  # listings keep a distance  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        records = await read_all(endpoint)
    assert sorted(payloads(records)) == list(range(3_000))
    assert_key_order(records)
    assert metrics["shardMapRefreshes"] > 0


def _split_first(stream):
    first = stream.open_shards[0]
    split(stream, first, (first.hash_range.start + first.hash_range.end) // 2)


def _merge_last(stream):
    merge(stream, *stream.open_shards[-2:])


@pytest.mark.slow
@pytest.mark.parametrize("aggregated", [False, True])
async def test_k2_a_hundred_writers_of_one_key_keep_its_order_through_partial_failures(aggregated):
    numbers = itertools.count()

    async def write(sink):
        for _ in range(6):
            number = next(numbers)
            # Refusals are bound to records and not to time: a sink that waits longer after each refusal never overtakes a clock.
            if number % 10 == 0:
                endpoint.faults.fail_entries(1, code="InternalFailure")
            await sink.put(str(number).encode(), "the key")
            await asyncio.sleep(0)

    async with LocalKinesis(streams={"out": 2}) as endpoint:
        given = {
            **endpoint.properties(),
            "AggregationEnabled": aggregated,
        }
        async with KinesisSink("out", given, ordering="PER_KEY", queue_limit=60) as sink:
            await asyncio.gather(*(write(sink) for _ in range(100)))
            await sink.flush()
            metrics = sink.metrics()
        read = payloads(await read_all(endpoint))
    assert read == list(range(600))
    assert metrics["resentRecords"] > 0
    assert metrics["backpressureCycles"] > 0


async def test_k3_a_record_that_is_too_large_fails_its_put_and_nothing_else():
    async with LocalKinesis(streams={"out": 1}) as endpoint:
        async with KinesisSink("out", endpoint.properties()) as sink:
            await sink.put(b"1", "k")
            with pytest.raises(rp.SinkError, match="MaxRecordSizeInKiB"):
                await sink.put(bytes(2**20), "k")
            await sink.put(b"2", "k")
        assert payloads(await read_all(endpoint)) == [1, 2]


async def test_the_streams_own_record_limit_counts():
    async with LocalKinesis(streams={"out": 1}) as endpoint:
        endpoint.stream("out").max_record_bytes = 3 * 2**20
        async with KinesisSink("out", endpoint.properties()) as sink:
            await sink.put(bytes(3 * 2**20 - 1), "k")
        read = await read_all(endpoint)
        assert len(read[0].data) == 3 * 2**20 - 1


async def test_a_stream_that_does_not_exist_is_named_with_those_that_do():
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        with pytest.raises(rp.StreamNotFoundError, match="existing streams: orders"):
            async with KinesisSink("out", endpoint.properties()):
                pytest.fail("it was opened")


async def test_deleting_the_stream_ends_the_sink():
    async with (
        LocalKinesis(streams={"out": 1, "other": 1}) as endpoint,
        KinesisSink("out", endpoint.properties()) as sink,
    ):
        await sink.put(b"1", "k")
        await sink.flush()
        endpoint.stream("out").set_busy("DELETING", 0)
        await sink.put(b"2", "k")
        with pytest.raises(rp.StreamNotFoundError, match="other"):
            await sink.flush()


async def test_an_endpoint_that_restarts_loses_no_record():
    async with LocalKinesis(streams={"out": 2}) as endpoint:
        given = {**endpoint.properties(), **UNPACED}
        async with KinesisSink("out", given, queue_limit=500) as sink:
            await put_numbers(sink, range(1_000))
            endpoint.faults.drop_next("PutRecords", 1)
            await endpoint.close()
            putting = asyncio.create_task(put_numbers(sink, range(1_000, 4_000)))
            while not sink.metrics()["failedRequests"]:  # noqa: ASYNC110 - a test looks from outside
                await asyncio.sleep(0.05)
            revived = LocalKinesis(port=endpoint.port)
            revived.account._streams = endpoint.account._streams
            async with revived:
                await putting
                await sink.flush()
                metrics = sink.metrics()
                read = payloads(await read_all(revived))
    assert set(read) == set(range(4_000))
    assert metrics["failedRequests"] > 0


async def test_a_call_from_another_threads_loop_is_refused_with_what_to_use():
    """It would wait for a wake-up that never comes, and its timeout with it."""
    async with LocalKinesis(streams={"out": 1}) as endpoint, rp.KinesisSink("out", endpoint.properties()) as sink:
        for call in (partial(sink.put, b"1", "key"), sink.flush, sink.close):
            with pytest.raises(
                rp.SinkError, match=r"only be used in the event loop in which it was opened.*rp.Producer"
            ):
                await asyncio.to_thread(lambda call=call: asyncio.run(call()))
        loop = asyncio.get_running_loop()
        there = partial(asyncio.run_coroutine_threadsafe, loop=loop)
        await asyncio.to_thread(lambda: there(sink.put(b"2", "key")).result(10))
        await sink.flush()
        assert sink.metrics()["numRecordsOut"] == 1


async def test_a_sink_that_a_program_has_opened_is_refused_as_the_sink_of_a_job():
    async with (
        LocalKinesis(streams={"in": 1, "out": 1}) as endpoint,
        rp.KinesisSink("out", endpoint.properties()) as sink,
    ):
        with pytest.raises(rp.SinkError, match="the Kinesis sink of out is open already"):
            async with rp.DataFetcher("in", endpoint.properties(), sink=sink):
                pass
        await sink.put(b"1", "key")
        await sink.flush()


async def test_a_sink_that_was_closed_can_be_opened_again():
    async with LocalKinesis(streams={"out": 1}) as endpoint:
        sink = rp.KinesisSink("out", endpoint.properties())
        for number in range(2):
            async with sink:
                await sink.put(b"%d" % number, "key")
        assert [each.data for each in await read_all(endpoint)] == [b"0", b"1"]


async def test_a_second_block_of_an_open_sink_is_refused_and_the_first_goes_on():
    async with LocalKinesis(streams={"out": 1}) as endpoint, rp.KinesisSink("out", endpoint.properties()) as sink:
        with pytest.raises(rp.SinkError, match="is open already"):
            async with sink:
                pass
        await sink.put(b"1", "key")
        await sink.flush()


@pytest.mark.parametrize(("target", "is_warned"), [("in", True), ("out", False)])
async def test_a_job_that_may_copy_a_stream_into_itself_is_warned(target, is_warned, caplog):
    async with LocalKinesis(streams={"in": 1, "out": 1}) as endpoint:
        sink = rp.KinesisSink(target, endpoint.properties())
        fetcher = rp.DataFetcher("in", endpoint.properties(), sink=sink)
        await fetcher.__aenter__()
        await fetcher.__aexit__(None, None, None)
    assert any("read and put again without end" in line for line in caplog.messages) == is_warned
