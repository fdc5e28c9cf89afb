"""Records of a queue are acknowledged by calls of ten, each of which may fail alone; on virtual time."""

import recordpublisher as rp
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.publishers.errors import RetriesExhaustedError
from recordpublisher.publishers.kinesis.client import TRANSPORTS
from recordpublisher.publishers.kinesis_queue import KinesisQueue
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import run_virtual

from fakes.queues.local_queue import PROPERTIES, LocalQueue


def settled(fault, records=300):
    """What the acknowledgement of so many records returned or raised, how many calls it made, and how many records the queue still has."""
    calls = []

    class CountingTransport(MemoryTransport):
        async def call(self, api, **parameters):
            calls.append(api)
            return await super().call(api, **parameters)

    async def run():
        queue = LocalQueue()
        await queue.open()
        token = TRANSPORTS.set(lambda: CountingTransport(queue.account))
        try:
            few = {"flink.queue.visibility.timeout": "300", "flink.shard.getrecords.maxretries": "3"}
            source = KinesisQueue(rp.Properties({**PROPERTIES, **few}))
            source.prepare(["orders"])
            await source.open()
            queue.put(*(b"%d" % number for number in range(records)))
            received = []
            while got := await source.receive(ShardMetrics()):
                received += got
            assert len(received) == records
            calls.clear()
            queue.account.faults.start_random(fault, seed=1)
            try:
                found = await source.acknowledge(received)
            except rp.RecordPublisherError as error:
                found = error
            await source.close()
        finally:
            TRANSPORTS.reset(token)
        (real,) = queue.account.queues.all()
        return found, calls.count("AcknowledgeQueueRecords"), len(real.deliveries.unacknowledged)

    return run_virtual(run())


def test_a_call_that_is_throttled_is_repeated_alone():
    failed, calls, left = settled("throttle@AcknowledgeQueueRecords=0.1")

    assert (failed, left) == (set(), 0)
    assert 30 < calls < 45


def test_of_calls_that_fail_to_the_end_only_their_own_records_count_as_failed():
    failed, _, left = settled("throttle@AcknowledgeQueueRecords=0.9")

    assert 0 < len(failed) == left < 300


def test_when_every_call_fails_to_the_end_the_error_is_raised():
    error, _, left = settled("throttle@AcknowledgeQueueRecords=1", records=30)

    assert isinstance(error, RetriesExhaustedError)
    assert left == 30
