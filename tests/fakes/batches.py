"""Batches as sinks receive them, and the user records of a Kinesis record."""

from recordpublisher.publishers.aggregation.deaggregation import Deaggregator
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard


def batch(*payloads: bytes, stream: str = "orders", shard_id: str = "shardId-0", first: int = 1) -> RecordBatch:
    """A batch of one shard with sequence numbers from `first` on."""
    records = [UserRecord(data, str(number), 1_700_000_000.5, "key") for number, data in enumerate(payloads, first)]
    return RecordBatch(
        Shard(stream, shard_id),
        records,
        millis_behind_latest=0,
        read_position=SequenceNumber(str(first + len(payloads) - 1)) if payloads else None,
        raw_count=len(payloads),
        raw_bytes=sum(map(len, payloads)),
    )


def user_records(record: UserRecord, shard: Shard | None = None) -> list[UserRecord]:
    """Those that belong to the shard (None: all). For a short aggregate, which is expanded without waiting."""
    deaggregator = Deaggregator(shard or Shard("s", "shardId-0"), ShardMetrics())
    batches = deaggregator.batches(ReadResponse([record], 0), None, StartingPosition.trim_horizon())
    try:
        anext(batches).send(None)
    except StopIteration as done:
        return list(done.value.records)
    raise AssertionError("the aggregate is too long for one step")
