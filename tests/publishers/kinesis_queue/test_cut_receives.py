"""What becomes of received records when the receiver ends before the job has them, and of answers that no queue gives."""

import asyncio
import json

import msgspec
import pytest

from recordpublisher.publishers.aggregation.kpl_format import encode_aggregate
from recordpublisher.publishers.errors import FatalKinesisError
from recordpublisher.publishers.kinesis.codec import decode_read
from recordpublisher.publishers.kinesis_queue import KinesisQueue, ReceivedRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


class TwoRecords:
    """A queue that delivers the records "old" and "new" at each receive. `settling`: what happens in the next acknowledgement."""

    def __init__(self, settling=None):
        self.settling = settling
        self.receives = 0
        self.is_settling = asyncio.Event()
        self.settled = []
        self.data = {}

    async def receive(self, arn, wait_seconds, visibility_seconds):
        self.receives += 1
        return [
            ReceivedRecord(f"{name}-{self.receives}", name, self.data.get(name, b"x"), 1.0, self.receives)
            for name in ("old", "new")
        ]

    async def settle(self, api, arn, handles, visibility_seconds=None):
        if api == "AcknowledgeQueueRecords":
            self.is_settling.set()
            settling, self.settling = self.settling, None
            if isinstance(settling, Exception):
                raise settling
            await asyncio.sleep(settling or 0)
        self.settled += handles
        return {}

    async def close(self):
        pass


def source_of(queue):
    source = KinesisQueue({"aws.region": "us-east-1"}, client=queue, clock=VirtualClock())
    source._arn = "arn"
    return source


def numbers(records):
    return [record.sequence_number for record in records]


def test_a_record_of_a_receive_that_is_cancelled_before_it_hands_over_is_visible_at_once():
    async def test():
        queue = TwoRecords(settling=5)
        queue.data = {"old": encode_aggregate([])}
        receiving = asyncio.create_task(source_of(queue).receive(ShardMetrics()))
        await queue.is_settling.wait()
        receiving.cancel()
        await asyncio.wait([receiving])

        assert receiving.cancelled()
        assert queue.settled == ["old-1", "new-1"]

    run_virtual(test())


def test_a_record_of_a_receive_whose_empty_aggregates_cannot_be_acknowledged_is_visible_at_once():
    async def test():
        queue = TwoRecords(FatalKinesisError("AcknowledgeQueueRecords", "AccessDenied", ""))
        queue.data = {"old": encode_aggregate([])}
        with pytest.raises(FatalKinesisError):
            await source_of(queue).receive(ShardMetrics())

        assert queue.settled == ["old-1", "new-1"]

    run_virtual(test())


def test_an_aggregate_without_records_is_acknowledged_when_it_is_received():
    """Nobody is given anything of it, so nobody would acknowledge it: it would come again and again."""

    async def test():
        queue = TwoRecords()
        queue.data = {"old": encode_aggregate([])}

        assert numbers(await source_of(queue).receive(ShardMetrics())) == ["new"]
        assert queue.settled == ["old-1"]

    run_virtual(test())


@pytest.mark.parametrize("arrival", [1e300, -1e300, 253_402_300_800])
def test_an_answer_with_a_time_of_arrival_that_no_date_can_be_is_malformed(arrival):
    record = {"Data": "eA==", "SequenceNumber": "1", "ApproximateArrivalTimestamp": arrival}
    with pytest.raises(msgspec.ValidationError, match="ApproximateArrivalTimestamp"):
        decode_read(json.dumps({"Records": [record], "MillisBehindLatest": 0}).encode())
    received = {"ReceiptHandle": "h", "RecordId": "r", "ReceiveCount": 1, **record}
    with pytest.raises(msgspec.ValidationError, match="ApproximateArrivalTimestamp"):
        msgspec.convert(received, ReceivedRecord)
