"""The inputs of operations that put and read records."""

from typing import Annotated

import msgspec
from msgspec import Meta

from recordpublisher.publishers.service_limits import GET_RECORDS_RECORDS, PUT_RECORDS_RECORDS

from .fields import Arn, Count, HashKey, Name, Number, PartitionKey, Request, StartType, StreamRequest


class Entry(msgspec.Struct, rename="pascal", gc=False):
    """One record to put; `data` stays base64 text."""

    data: str
    partition_key: PartitionKey | None = None
    explicit_hash_key: HashKey | None = None


class PutRecord(StreamRequest, frozen=True, kw_only=True):
    data: str
    partition_key: PartitionKey | None = None
    explicit_hash_key: HashKey | None = None
    sequence_number_for_ordering: Number | None = None
    dry_run: bool = False


class PutRecords(StreamRequest, frozen=True, kw_only=True):
    records: Annotated[list[Entry], Meta(min_length=1, max_length=PUT_RECORDS_RECORDS)]
    dry_run: bool = False


class GetShardIterator(StreamRequest, frozen=True, kw_only=True):
    """A position in a shard; the timestamp is in seconds."""

    shard_id: Name
    shard_iterator_type: StartType
    starting_sequence_number: Number | None = None
    timestamp: float | None = None
    dry_run: bool = False


class GetRecords(Request, frozen=True):
    shard_iterator: Annotated[str, Meta(min_length=1, max_length=512)]
    limit: Count = GET_RECORDS_RECORDS
    stream_arn: Arn | None = None
    dry_run: bool = False
