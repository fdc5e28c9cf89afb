"""Decodes responses and encodes requests. The JSON of a read becomes records in one step, and records become the body of PutRecords."""

from __future__ import annotations

import base64
import io
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from ..decoding_errors import UNDECODABLE
from ..records import RecordColumns, UserRecord
from ..shards import HashRange, Shard, is_valid_name
from .ports import PutEntry, PutRecordsResponse, ReadResponse

try:
    from pybase64 import b64decode as simd_decode
except ImportError:  # Without pybase64, payloads are left to msgspec, because Python's own base64 is slower.
    simd_decode = None
"""The base64 decoder of the package pybase64, which uses SIMD; None if the extra is not installed."""

# --- reads --------------------------------------------------------------------------------------------------------------------------


def decode_read(body: bytes | memoryview) -> ReadBody:
    """Decode the body of a read. That takes 0.6 to 1.0 us for each record.

    Raises: msgspec.DecodeError if the body is not as documented.
    """
    decoded = decode_json(_READ_DECODER, _records_of, body)
    decoded.wire_bytes = len(body)
    return decoded


def to_read_response(body: ReadBody, shard: Shard) -> ReadResponse:
    """Return a decoded body as a `ReadResponse`. If it has no continuation, or an empty one, the shard has ended.

    - `shard`: the shard that was read. Its children belong to the same stream.

    Raises: ValueError if a shard id, a sequence number or a child's hash key is not valid.
    """
    # Only the first and the last record are checked, because checking each would cost a third of decoding it.
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


class ReadBody(msgspec.Struct):
    """The body of a GetRecords response or of a SubscribeToShardEvent, as sent. Fields that only the other kind of body has are None.

    `Records` is required. If it were optional, any JSON object without a continuation would look like the end of a shard.
    """

    Records: list[UserRecord]
    MillisBehindLatest: int | None = None
    NextShardIterator: str | None = None
    ContinuationSequenceNumber: str | None = None
    ChildShards: tuple[_ChildShard, ...] | None = None
    wire_bytes: int = 0


class _ChildShard(msgspec.Struct):
    ShardId: str
    ParentShards: tuple[str, ...] = ()
    HashKeyRange: _HashKeyRange | None = None


class _HashKeyRange(msgspec.Struct):
    StartingHashKey: str
    EndingHashKey: str


_READ_DECODER = msgspec.json.Decoder(ReadBody)
_records_of = attrgetter("Records")

_SEQUENCE_NUMBER = re.compile(r"[0-9]{1,129}")
_SHOWN = 80


def check_shard_ids(*given: str) -> None:
    """Check that each text is a valid shard id. Raises: ValueError if one is not, TypeError if one is not text."""
    for each in given:
        if not is_valid_name(each):
            raise ValueError(f"not a shard id: {each[:_SHOWN]!r}. Valid: at most 128 letters, digits, or _ . -")


def check_sequence_numbers(*given: str) -> None:
    """Check that each text is a valid sequence number. Raises: ValueError if one is not."""
    for each in given:
        if not _SEQUENCE_NUMBER.fullmatch(each):
            raise ValueError(f"not a sequence number: {each[:_SHOWN]!r}. Valid: 1 to 129 digits")


# --- reads while they arrive --------------------------------------------------------------------------------------------------------

MIN_PIECE_BYTES = 32 * 1024
"""How many bytes must have arrived before they are decoded. A call of the decoder is not worthwhile for fewer."""
_RECORDS_START = re.compile(rb'"Records": ?\[')
_MAX_PREFIX_BYTES = 64 * 1024  # The iterator and the child shards may come before the records.
_SPLIT = re.compile(rb'\}, ?\{"[A-Za-z]')
_BRACE = b"{"
_SEARCH_WINDOW_BYTES = 16 * 1024
_RECORDS = msgspec.json.Decoder(list[UserRecord])
_COMMA, _OPEN, _CLOSE, _SPACE = b",[] "


class IncrementalReadDecoder:
    """Decodes the records of a GetRecords body while its bytes arrive, so that 14 MiB are never buffered or decoded at once.

    At the end, `body` equals the result of `decode_read` for the whole body.

    It splits the list of records at `},{"` followed by a letter, with or without a space after the comma. In JSON this occurs only between
    two objects: inside a string the quotation mark would be escaped, and after the end of a string no letter follows. If a body cannot be
    split (line ends between records, no list of records), it is buffered and decoded as a whole, so errors are the same in both cases.
    """

    body: ReadBody | None = None

    def __init__(self) -> None:
        self._prefix = b""
        self._records: list[UserRecord] = []
        self._consumed = 0
        self._is_splittable = True

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Decode records from the front of the bytes. Return how many bytes were consumed.

        - `is_last`: whether these are the last bytes of the body.

        Raises: msgspec.DecodeError if the body is malformed.
        """
        if is_last:
            self.body = self._decode_rest(data)
            return len(data)
        if len(data) < MIN_PIECE_BYTES or not self._is_splittable or data.readonly:
            return 0
        consumed = self._decode_piece(data)
        self._is_splittable = consumed > 0 or self._is_splittable
        self._consumed += consumed
        return consumed

    def _decode_piece(self, data: memoryview) -> int:
        """Decode the records that are complete in `data`. Return how many bytes were consumed.

        The remaining bytes begin with the comma before the next record. The next call replaces this comma by a bracket, so that the bytes
        are a list again.
        """
        first = 0 if self._prefix else self._records_start(data)
        split = _last_split(data)
        if not self._is_splittable or split <= first:
            return 0
        # While the decoder runs, the two commas around the records are replaced by brackets in the buffer, so that nothing is copied.
        before, data[first], data[split] = data[first], _OPEN, _CLOSE
        # The split is behind the records, or the body is malformed: decode the whole body later.
        try:
            records = decode_json(_RECORDS, _same, data[first : split + 1])
        except msgspec.DecodeError:
            self._is_splittable = False
            return 0
        finally:
            data[first], data[split] = before, _COMMA
        self._records += records
        self._prefix = self._prefix or bytes(data[: first + 1])
        return split

    def _records_start(self, data: memoryview) -> int:
        text = bytes(data[:_MAX_PREFIX_BYTES])
        found = _RECORDS_START.search(text)
        end = len(text) if found is None else found.end()
        # The list must be a field of the outermost object. That is so if the text before the list, with `]}` added, is a valid body.
        try:
            decode_read(text[:end] + b"]}")
        except msgspec.DecodeError:
            self._is_splittable = False
        return end - 1

    def _decode_rest(self, rest: memoryview) -> ReadBody:
        body = decode_read(self._prefix + rest[1:] if self._prefix else rest)
        if self._prefix:
            body.Records = self._records + body.Records
        body.wire_bytes = self._consumed + len(rest)
        return body


def _same(records: list[UserRecord]) -> list[UserRecord]:
    return records


def _last_split(data: memoryview) -> int:
    """Return the index of the last comma between two records, or -1 if there is none. The body can be cut there."""
    # A split is usually near the end, so a small window is searched first.
    for window in (_SEARCH_WINDOW_BYTES, len(data)):
        text = bytes(data[-window:])
        brace = len(text)
        while (brace := text.rfind(_BRACE, 3, brace)) >= 0:  # A single byte is found as fast as memory is read.
            comma = brace - 1 - (text[brace - 1] == _SPACE)
            if _SPLIT.match(text, comma - 1) is not None:
                return len(data) - len(text) + comma
    return -1


# --- large payloads -----------------------------------------------------------------------------------------------------------------

Decoded = TypeVar("Decoded")

LARGE_PAYLOAD_BYTES = 2_700
"""From this length (characters; 2 KiB of data), it costs less to decode a base64 text apart from the JSON.

For 10 KiB of data the cost is a third.
"""
_SEARCHED_BYTES = 4_096
_DATA = b'"Data":"'
_PLACEHOLDER_BYTES = secrets.token_bytes(9)
"""The data that stands for a payload that was cut out. It is random, so that no response can contain it on purpose."""
_PLACEHOLDER = base64.b64encode(_PLACEHOLDER_BYTES)


def decode_json(
    decoder: msgspec.json.Decoder[Decoded],
    records_of: Callable[[Decoded], list[UserRecord]],
    body: bytes | memoryview,
    base64_decode: Callable[..., bytes] | None = simd_decode,
) -> Decoded:
    """Return the result of `decoder.decode(body)`, at a lower cost if payloads are large.

    If the first payload is large and the JSON has the usual form, all payloads are cut out and decoded separately.

    - `records_of`: returns the records in the decoded object. They then receive their payloads.

    Raises: msgspec.DecodeError if the body is malformed.
    """
    if base64_decode is not None and _begins_with_large_payload(body):
        try:
            return _decode_apart(decoder, records_of, bytes(body), base64_decode)
        except ValueError:  # The JSON is unusual or malformed. Decoding it as a whole shows which.
            pass
    return decoder.decode(body)


def _begins_with_large_payload(body: bytes | memoryview) -> bool:
    if len(body) < LARGE_PAYLOAD_BYTES:
        return False
    start = bytes(body[:_SEARCHED_BYTES]).find(_DATA)
    payload = bytes(body[start + len(_DATA) : start + len(_DATA) + LARGE_PAYLOAD_BYTES])
    return start >= 0 and len(payload) == LARGE_PAYLOAD_BYTES and b'"' not in payload


def _decode_apart(
    decoder: msgspec.json.Decoder[Decoded],
    records_of: Callable[[Decoded], list[UserRecord]],
    body: bytes,
    base64_decode: Callable[..., bytes],
) -> Decoded:
    """Cut out the payloads, decode them and the remaining JSON separately, and put each payload into its record.

    Raises: ValueError if something else than the payload of one record was cut out.
    """
    # 1. Cut. A cut at an escaped quotation mark would end in a backslash, which base64 decoding refuses.
    rest, payloads, at = [], [], 0
    while (found := body.find(_DATA, at)) >= 0:
        start = found + len(_DATA)
        end = body.index(b'"', start)
        encoded = body[start:end]
        payload = base64_decode(encoded, validate=True)
        if len(payload) != len(encoded) * 3 // 4 - encoded[-2:].count(b"="):
            raise ValueError("too much padding, or none")
        rest.append(body[at:start])
        payloads.append(payload)
        at = end
    # 2. Decode the remaining JSON, and put each payload into its record.
    decoded = decoder.decode(_PLACEHOLDER.join([*rest, body[at:]]))
    # 3. Check that each cut was the payload of one record. After a wrong cut some record has no placeholder.
    for record, payload in zip(records_of(decoded), payloads, strict=True):
        if record.data != _PLACEHOLDER_BYTES:
            raise ValueError("a payload in unusual JSON")
        record.data = payload
    return decoded


# --- PutRecords ---------------------------------------------------------------------------------------------------------------------

_BODY: ContextVar[bytes | None] = ContextVar("recordpublisher_body", default=None)
PLACEHOLDER = [{"Data": b"", "PartitionKey": "-"}]
"""A record that the SDK serializes instead of the real records, which would cost 7 us each.

The body that this module has encoded then replaces that of the SDK.
"""
LARGE_PUT_BYTES = 2**20
"""A body of PutRecords above this size (bytes) is passed to the HTTP client as a file.

The client sends a file in pieces. Between them, the event loop runs other tasks.
"""
_ENCODER = msgspec.json.Encoder()
_PUT_DECODER = msgspec.json.Decoder(PutRecordsResponse)


def encode_put(stream: dict[str, str], entries: Sequence[PutEntry]) -> bytes:
    """Return the body of PutRecords. Base64 is encoded in C: 0.15 us for a record of 200 B."""
    return _ENCODER.encode({**stream, "Records": entries})


def decode_put(body: bytes) -> PutRecordsResponse:
    """Return the results of PutRecords, in the order of the records. Raises: msgspec.DecodeError if the body is not as documented."""
    return _PUT_DECODER.decode(body)


@contextmanager
def preset_body(body: bytes | None) -> Iterator[None]:
    """Let the SDK's calls of this task in the `with` block send `body`. If it is None, they send the body that the SDK has made."""
    token = _BODY.set(body)
    try:
        yield
    finally:
        _BODY.reset(token)


def replace_body(params: dict[str, Any], **_: Any) -> None:
    """Replace the body of a call by that of `preset_body`. Called before the SDK signs the call.

    It handles the SDK's event `before-call.kinesis.PutRecords`, in the task of the caller.
    """
    body = _BODY.get()
    if body is not None:
        params["body"] = as_http_body(body)


def as_http_body(body: bytes | None) -> bytes | io.BytesIO | None:
    """Return the body as the HTTP client should get it. A large body becomes a file, because the client sends a file in pieces."""
    return io.BytesIO(body) if body is not None and len(body) > LARGE_PUT_BYTES else body


# --- responses by their shapes ------------------------------------------------------------------------------------------------------

READ = "read"
"""The key of the `ReadBody` in a parsed response."""
PUT = "put"
"""The key of the `PutRecordsResponse` in a parsed response."""
RAW_EVENTS = "raw_events"
"""The key of the open HTTP response of an event stream, in a parsed response."""


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a response that has no decoder of its own. Raises: msgspec.DecodeError if the body is not a JSON object."""
    return msgspec.json.decode(body, type=dict[str, Any])


def decode_error(body: bytes | memoryview) -> dict[str, str]:
    """Return the fields of an error. If the body is not a JSON object, as from a proxy, its text is the field `message`."""
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
    # `EventSubscription` reads and decodes the frames one at a time (F1), including the initial response.
    "SubscribeToShardOutput": lambda body: {RAW_EVENTS: body},
    "GetShardIteratorOutput": decode_object,
}
"""Decoders for the frequent responses, instead of the SDK's. The keys are the SDK's names for the shapes of the responses."""
