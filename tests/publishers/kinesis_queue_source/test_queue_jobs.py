"""QUEUE in whole jobs against the embedded endpoint, on virtual time."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.local_queue import PROPERTIES, LocalQueue, sums
from servers.kpl_aggregates import aggregate

OF_DUBLIN = "arn:aws:kinesis:eu-west-1:000000000000:queue/0a1b2c"
PAYLOADS = [b"%d" % number for number in range(300)]


def job(test):
    """Run a test on virtual time with a queue of its own."""

    def run(*arguments):
        async def opened():
            queue = LocalQueue()
            await queue.open()
            await test(queue, *arguments)

        run_virtual(opened())

    return run


def data(records):
    return sorted(record.data for record in records)


@job
async def test_every_record_is_read_and_acknowledged(queue):
    queue.put(*PAYLOADS)
    sink = rp.MemorySink()
    metrics = await queue.work(sink)
    await asyncio.sleep(60)

    assert data(sink.records) == sorted(PAYLOADS)
    assert await queue.receive() == []
    assert metrics == {"unacknowledged": 0, "failedAcknowledgements": 0, "duplicates": 0, "retries": 0}


@job
async def test_two_processes_share_a_queue(queue):
    queue.put(*PAYLOADS)
    calls = []

    async def handler(record):
        await asyncio.sleep(0.5)
        calls.append(record.data)

    sinks = [rp.MapSink(handler, ordering="NONE", concurrency=10, clock=VirtualClock()) for _ in range(2)]
    await asyncio.gather(*(queue.work(sink, receivers="1") for sink in sinks))

    assert sorted(calls) == sorted(PAYLOADS)
    assert all(sink.metrics()["handled"] > 50 for sink in sinks)


@job
async def test_an_aggregate_is_split_and_acknowledged_as_one(queue):
    queue.put(aggregate(("k", b"a"), ("k", b"b"), ("k", b"c")), b"plain")
    done = []

    async def handler(record):
        await asyncio.sleep(record.sub_sequence_number * 8)  # the last part is done long after the timeout
        done.append(record.data)

    await queue.work(rp.MapSink(handler, ordering="NONE", clock=VirtualClock()))
    await asyncio.sleep(60)

    assert sorted(done) == [b"a", b"b", b"c", b"plain"]
    assert await queue.receive() == []


@pytest.mark.parametrize("duplicates", ["COUNT", "DROP"])
def test_duplicates_are_counted_and_dropped_by_option(duplicates):
    @job
    async def test(queue):
        queue.put(*PAYLOADS)
        queue.account.faults.start_random("redeliver=0.3", seed=1)
        sink = rp.MemorySink()
        metrics = await queue.work(sink, duplicates=duplicates)

        assert set(data(sink.records)) == set(PAYLOADS)
        assert metrics["duplicates"] > 50
        assert (len(sink.records) == 300) == (duplicates == "DROP")

    test()


@job
async def test_failures_of_single_handles_are_tried_again(queue):
    queue.put(*PAYLOADS)
    queue.account.faults.start_random("partial=0.2", seed=1)
    sink = rp.MemorySink()
    await queue.work(sink)
    await asyncio.sleep(60)

    assert set(data(sink.records)) == set(PAYLOADS)
    assert await queue.receive() == []


@job
async def test_records_that_were_handled_in_an_outage_of_acknowledgements_are_acknowledged_when_they_come_again(queue):
    queue.put(*PAYLOADS[:40])
    handled = []

    async def handler(record):
        handled.append(record.data)

    with queue.job(rp.MapSink(handler, ordering="NONE", clock=VirtualClock())) as fetcher:
        async with fetcher:
            await queue.arn()
            queue.account.faults.start_random("error@AcknowledgeQueueRecords", seed=1)
            running = asyncio.create_task(fetcher.run())
            await asyncio.sleep(15)
            queue.account.faults.stop_random()
            await asyncio.sleep(200)
            fetcher.stop()
            await running

    assert sorted(handled) == sorted(PAYLOADS[:40])
    assert await queue.receive() == []
    assert await queue.receive("DeadLetter") == []


@job
async def test_nothing_is_lost_under_faults_of_every_call(queue):
    queue.put(*PAYLOADS)
    kinds = ("throttle", "error", "reset", "late", "lost", "page", "partial", "redeliver")
    queue.account.faults.start_random(",".join(f"{kind}=0.03" for kind in kinds), seed=2)
    sink = rp.MemorySink()
    for _ in range(3):  # a lost answer hides its records, and the first run may end without them
        await queue.work(sink)
        await asyncio.sleep(20)

    assert set(data(sink.records)) == set(PAYLOADS)


@job
async def test_a_stop_in_a_receive_hides_nothing(queue):
    with queue.job(rp.MemorySink(), wait="20") as fetcher:
        async with fetcher:
            running = asyncio.create_task(fetcher.run())
            await asyncio.sleep(5)
            fetcher.stop()
            await asyncio.sleep(1)
            queue.put(*PAYLOADS[:10])
            await running

    assert len(await queue.receive()) == 10


@job
async def test_a_stop_releases_what_a_late_answer_brings(queue):
    with queue.job(rp.MemorySink(), wait="20") as fetcher:
        async with fetcher:
            await queue.arn()
            queue.account.faults.start_random("late@ReceiveQueueRecords=1~4", seed=1)
            running = asyncio.create_task(fetcher.run())
            await asyncio.sleep(1)
            queue.put(*PAYLOADS[:10])
            await asyncio.sleep(0.1)
            fetcher.stop()
            await running
    queue.account.faults.stop_random()

    assert len(await queue.receive()) == 10


@job
async def test_a_back_log_starts_more_receivers(queue):
    queue.put(*PAYLOADS * 3)
    sink = rp.MemorySink()
    await queue.work(sink, receivers="4")

    assert len({record.shard_id for record in sink.records}) == 4


@job
async def test_a_slow_sink_is_not_given_more_than_it_works_on(queue):
    queue.put(*PAYLOADS * 3)

    async def handler(record):
        await asyncio.sleep(30)

    with queue.job(rp.MapSink(handler, ordering="NONE", concurrency=8, clock=VirtualClock())) as fetcher:
        async with fetcher:
            running = asyncio.create_task(fetcher.run())
            await asyncio.sleep(25)
            held = sums(fetcher)["unacknowledged"]
            fetcher.stop()
            await running

    assert held == 100


@job
async def test_a_queue_that_is_not_to_be_created_must_exist(queue):
    with pytest.raises(rp.ConfigurationError, match=r"orders has no such queue, and flink.queue.create is NONE"):
        await queue.work(rp.MemorySink(), create="NONE")


@job
async def test_a_queue_is_found_by_name_and_by_arn(queue):
    queue.put(b"a")
    await queue.work(rp.MemorySink())
    queue.put(b"b")
    by_name, by_arn = rp.MemorySink(), rp.MemorySink()
    await queue.work(by_name, create="NONE")
    queue.put(b"c")
    await queue.work(by_arn, name=await queue.arn())

    assert (data(by_name.records), data(by_arn.records)) == ([b"b"], [b"c"])


@job
async def test_a_new_queue_begins_where_it_is_told(queue):
    queue.put(b"before")
    await asyncio.sleep(2)
    sink = rp.MemorySink()
    await queue.work(sink, **{"flink.stream.initpos": "LATEST"})

    assert sink.records == []


@job
async def test_a_new_queue_begins_at_an_age(queue):
    queue.put(b"old")
    await asyncio.sleep(100)
    queue.put(b"young")
    await asyncio.sleep(2)
    sink = rp.MemorySink()
    await queue.work(sink, **{"flink.stream.initpos": "1m"})

    assert data(sink.records) == [b"young"]


@pytest.mark.parametrize("name", [None, "no name", "arn:aws:sqs:us-east-1:000000000000:work"])
def test_a_job_without_a_queue_is_refused(name):
    given = {"flink.stream.recordpublisher": "QUEUE", "aws.region": "us-east-1", "flink.queue.name": name}
    with pytest.raises(rp.ConfigurationError, match=r"flink\.queue\.name"):
        rp.DataFetcher("orders", given, sink=rp.MemorySink())


def test_a_queue_is_of_one_stream():
    given = {"flink.stream.recordpublisher": "QUEUE", "aws.region": "us-east-1", "flink.queue.name": "work"}
    with pytest.raises(rp.ConfigurationError, match="one stream"):
        rp.DataFetcher(["orders", "clicks"], given, sink=rp.MemorySink())


@pytest.mark.parametrize(
    ("given", "stream", "named"),
    [
        ({"flink.queue.wait": 5, "aws.request.timeout": 5000}, "orders", r"flink\.queue\.wait.*aws\.request\.timeout"),
        ({"flink.queue.name": OF_DUBLIN}, "orders", "a queue in us-east-1"),
        (
            {"flink.queue.name": OF_DUBLIN},
            "arn:aws:kinesis:us-west-2:000000000000:stream/orders",
            "a queue in us-west-2",
        ),
    ],
)
def test_a_job_that_could_only_fail_is_refused(given, stream, named):
    properties = {**PROPERTIES, **given}
    with pytest.raises(rp.ConfigurationError, match=named):
        rp.DataFetcher(stream, properties, sink=rp.MemorySink())
