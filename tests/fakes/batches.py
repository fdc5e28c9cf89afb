"""Batches as sinks receive them."""

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


def batch(*payloads: bytes, stream: str = "orders", shard_id: str = "shardId-0") -> RecordBatch:
    """A batch of one shard with sequence numbers from 1."""
    records = [UserRecord(data, str(number), 1_700_000_000.5, "key") for number, data in enumerate(payloads, 1)]
    return RecordBatch(
        Shard(stream, shard_id),
        records,
        millis_behind_latest=0,
        read_position=SequenceNumber(str(len(payloads))) if payloads else None,
        raw_count=len(payloads),
        raw_bytes=sum(map(len, payloads)),
    )
