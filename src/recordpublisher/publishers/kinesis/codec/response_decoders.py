"""RESPONSE_DECODERS: our own decoders for the frequent responses, by the SDK's names of their shapes. Reads become records directly."""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from recordpublisher.publishers.records import RecordColumns, UserRecord
from recordpublisher.publishers.shards import HashRange, Shard, is_valid_name
from recordpublisher.publishers.undecodable import UNDECODABLE

from ..ports import ReadResponse
from .large_payloads import decode_json
from .put_records import decode_put

_SEQUENCE_NUMBER = re.compile(r"[0-9]{1,129}")
_SHOWN = 80


def check_shard_ids(*given: str) -> None:
    """Check shard ids. Raises: ValueError if a text is not a valid shard id, TypeError if it is not text."""
    for each in given:
        if not is_valid_name(each):
            raise ValueError(f"not a shard id: {each[:_SHOWN]!r}. Valid: letters, digits, _ . -, 128 at most")


def check_sequence_numbers(*given: str) -> None:
    """Check sequence numbers. Raises: ValueError if a text is not a valid sequence number.

    Callers check only the first and the last record of a response, because checking each would cost a third of decoding
    it.
    """
    for each in given:
        if not _SEQUENCE_NUMBER.fullmatch(each):
            raise ValueError(f"not a sequence number: {each[:_SHOWN]!r}. Valid: 1 to 129 digits")


class _HashKeyRange(msgspec.Struct):
    StartingHashKey: str
    EndingHashKey: str


class _ChildShard(msgspec.Struct):
    ShardId: str
    ParentShards: tuple[str, ...] = ()
    HashKeyRange: _HashKeyRange | None = None


class ReadBody(msgspec.Struct):
    """A GetRecords response or a SubscribeToShardEvent as sent. The fields of the other one stay None.

    `Records` is required. Otherwise any JSON object without a continuation would look like the end of a shard.
    """

    Records: list[UserRecord]
    MillisBehindLatest: int | None = None
    NextShardIterator: str | None = None
    ContinuationSequenceNumber: str | None = None
    ChildShards: tuple[_ChildShard, ...] | None = None
    wire_bytes: int = 0


_DECODER = msgspec.json.Decoder(ReadBody)
_records_of = attrgetter("Records")


def decode_read(body: bytes | memoryview) -> ReadBody:
    """Decode a body, at 0.6 to 1.0 us a record. Raises: msgspec.DecodeError if it is not as documented."""
    decoded = decode_json(_DECODER, _records_of, body)
    decoded.wire_bytes = len(body)
    return decoded


def to_read_response(body: ReadBody, shard: Shard) -> ReadResponse:
    """Return the port's response. The children belong to the stream of `shard`. A missing or empty continuation ends the shard.

    Raises: ValueError if a shard id or sequence number is not valid, or a hash key of a child is not a number below
    2^128.
    """
    check_sequence_numbers(*(each.sequence_number for each in body.Records[:1] + body.Records[-1:]))
    if body.ContinuationSequenceNumber:
        check_sequence_numbers(body.ContinuationSequenceNumber)
    return ReadResponse(
        records=RecordColumns(records=body.Records),
        millis_behind_latest=body.MillisBehindLatest,
        next_iterator=body.NextShardIterator or None,
        continuation=body.ContinuationSequenceNumber or None,
        child_shards=tuple(_child_of(shard, child) for child in body.ChildShards or ()),
        wire_bytes=body.wire_bytes,
    )


def _child_of(shard: Shard, child: _ChildShard) -> Shard:
    check_shard_ids(child.ShardId, *child.ParentShards)
    keys = child.HashKeyRange
    hash_range = HashRange.parse(keys.StartingHashKey, keys.EndingHashKey) if keys else HashRange()
    return Shard(shard.stream, child.ShardId, child.ParentShards, hash_range, stream_arn=shard.stream_arn)


READ = "read"
"""Key of the parsed response that holds a `ReadBody`."""
PUT = "put"
"""Key of the parsed response that holds a `PutRecordsResponse`."""
RAW_EVENTS = "raw_events"
"""Key of the parsed response that holds the open HTTP response of an event stream."""


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a response that has no decoder of its own. Raises: msgspec.DecodeError if the body is not a JSON object."""
    return msgspec.json.decode(body, type=dict[str, Any])


def decode_error(body: bytes | memoryview) -> dict[str, str]:
    """Return the fields of an error. An error of a proxy may be any JSON, or any text, which is then the `message`."""
    try:
        parsed = msgspec.json.decode(body) if body else {}
    except RecursionError:
        parsed = {}
    except UNDECODABLE:
        parsed = bytes(body).decode(errors="replace")
    if not isinstance(parsed, dict):
        return {"message": str(parsed)}
    return {name: str(value) for name, value in parsed.items() if value is not None}


Decode = Callable[[Any], dict[str, Any]]
RESPONSE_DECODERS: dict[str, Decode] = {
    "GetRecordsOutput": lambda body: {READ: decode_read(body)},
    "PutRecordsOutput": lambda body: {PUT: decode_put(body)},
    # EventSubscription reads and decodes the frames one at a time (F1), including the initial response.
    "SubscribeToShardOutput": lambda body: {RAW_EVENTS: body},
    "GetShardIteratorOutput": decode_object,
}
