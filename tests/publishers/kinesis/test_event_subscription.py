import asyncio
import struct
import zlib
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp import web
from botocore.eventstream import ChecksumMismatch, InvalidHeadersLength, InvalidPayloadLength, ParserError

from recordpublisher.publishers.errors import (
    FatalKinesisError,
    ResourceInUseError,
    ResourceNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError, TruncatedStreamError
from recordpublisher.publishers.kinesis.event_subscription import EventSubscription, FrameReader
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import HashRange, Shard

from servers.event_frames import an_event, error, exception, frame, initial_response, wire_record
from servers.scripted_kinesis import refusal, stub_and_client

SHARD = Shard("orders", "shardId-000000000000")
CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/me:1"


@asynccontextmanager
async def subscribed(*chunks, position=None):
    async with stub_and_client() as (stub, client):
        stub.script("SubscribeToShard", list(chunks))
        subscription = await client.subscribe_to_shard(CONSUMER, SHARD, position or StartingPosition.trim_horizon())
        try:
            yield subscription
        finally:
            await subscription.close()


async def test_records_are_decoded_straight_into_user_records():
    async with subscribed(
        initial_response(), an_event(wire_record(b"\x00\xff", "4", arrival=1700000000.123))
    ) as events:
        responses = [response async for response in events]
    assert responses[0].records == [UserRecord(b"\x00\xff", "4", 1700000000.123, "k")]
    assert responses[0].continuation == "5"
    assert responses[0].millis_behind_latest == 0
    assert responses[0].wire_bytes > 0


async def test_the_end_of_the_shard_has_children_and_no_continuation():
    children = [
        {
            "ShardId": "shardId-000000000001",
            "ParentShards": ["shardId-000000000000"],
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
        }
    ]
    async with subscribed(initial_response(), an_event(continuation=None, ChildShards=children)) as events:
        (response,) = [response async for response in events]
    assert response.continuation is None
    assert response.child_shards == (
        Shard("orders", "shardId-000000000001", ("shardId-000000000000",), HashRange(0, 9)),
    )


@pytest.mark.parametrize(
    ("position", "start"),
    [
        (StartingPosition.trim_horizon(), {"Type": "TRIM_HORIZON"}),
        (StartingPosition.latest(), {"Type": "LATEST"}),
        (StartingPosition.at_timestamp(1_459_799_926_480), {"Type": "AT_TIMESTAMP", "Timestamp": 1_459_799_926.48}),
        (StartingPosition.after(SequenceNumber("5")), {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "5"}),
        (StartingPosition.after(SequenceNumber("5", 2)), {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "5"}),
    ],
    ids=lambda given: given["Type"] if isinstance(given, dict) else "",
)
async def test_a_subscription_starts_at_the_position(position, start):
    async with stub_and_client() as (stub, client):
        stub.script("SubscribeToShard", [initial_response()])
        await (await client.subscribe_to_shard(CONSUMER, SHARD, position)).close()
        (call,) = stub.requests_of("SubscribeToShard")
    assert call == {"ConsumerARN": CONSUMER, "ShardId": SHARD.shard_id, "StartingPosition": start}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceInUseException", ResourceInUseError),
        ("ResourceNotFoundException", ResourceNotFoundError),
        ("InternalFailureException", TransientError),
        ("KMSThrottlingException", ThrottledError),
        ("KMSAccessDeniedException", FatalKinesisError),
    ],
)
async def test_f3_an_exception_inside_the_stream_is_raised_after_the_events_before_it(code, kind):
    async with subscribed(initial_response(), an_event() + exception(code, "because")) as events:
        assert (await anext(events)).continuation == "5"
        with pytest.raises(kind, match="because") as raised:
            await anext(events)
    assert type(raised.value) is kind
    assert raised.value.code == code


async def test_an_error_frame_without_a_model_is_raised_with_its_code():
    async with subscribed(initial_response(), error("InternalFailure", "oh")) as events:
        with pytest.raises(TransientError, match="InternalFailure: oh"):
            await anext(events)


async def test_f3_a_frame_with_a_wrong_checksum_is_transient():
    broken = bytearray(an_event(wire_record(b"data", "1")))
    broken[-20] ^= 1
    async with subscribed(initial_response(), bytes(broken)) as events:
        with pytest.raises(TransientError, match="ChecksumMismatch"):
            await anext(events)


async def test_f3_a_wrong_length_is_an_error_before_that_many_bytes_are_awaited():
    broken = bytearray(an_event())
    broken[1] = 0x7F
    async with subscribed(initial_response(), bytes(broken), lambda _: asyncio.sleep(60)) as events:
        async with asyncio.timeout(60):
            with pytest.raises(TransientError, match="ChecksumMismatch"):
                await anext(events)


async def test_an_error_frame_with_an_unknown_code_is_transient():
    """The API documents no error frames, and the subscription was accepted: the server has failed, so another one may succeed."""
    async with subscribed(initial_response(), error("Novelty", "oh")) as events:
        with pytest.raises(TransientError, match="failed with Novelty: oh"):
            await anext(events)


async def test_f2_a_body_that_ends_inside_a_frame_is_an_error():
    async with subscribed(initial_response(), an_event()[:-7]) as events:
        with pytest.raises(TransientError, match="broke off inside a frame"):
            await anext(events)


async def test_a_connection_lost_between_frames_is_transient():
    async def abort(request):
        request.transport.abort()

    async with subscribed(initial_response(), an_event(), abort) as events:
        with pytest.raises(TransientError):
            assert len([response async for response in events]) > 1


async def test_a_malformed_payload_is_transient():
    headers = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
    async with subscribed(initial_response(), frame(headers, b"{oh")) as events:
        with pytest.raises(TransientError, match="DecodeError"):
            await anext(events)


@pytest.mark.parametrize("hash_key", ["x", "-5", "9" * 5_000])
async def test_a_child_with_an_invalid_hash_key_is_transient(hash_key):
    children = [{"ShardId": "a", "HashKeyRange": {"StartingHashKey": hash_key, "EndingHashKey": "1"}}]
    async with subscribed(initial_response(), an_event(continuation=None, ChildShards=children)) as events:
        with pytest.raises(TransientError, match="not a range of hash keys"):
            await anext(events)


@pytest.mark.parametrize("wrong", ["../1", "1\n", "x"], ids=repr)
async def test_a_continuation_that_is_no_sequence_number_is_transient(wrong):
    async with subscribed(initial_response(), an_event(continuation=wrong)) as events:
        with pytest.raises(TransientError, match="not a sequence number"):
            await anext(events)


async def test_a_deeply_nested_event_is_transient():
    headers = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
    async with subscribed(initial_response(), frame(headers, b'{"x":' + b"[" * 200_000)) as events:
        with pytest.raises(TransientError, match="RecursionError"):
            await anext(events)


async def test_a_deeply_nested_exception_is_raised_by_its_code():
    headers = {":message-type": "exception", ":exception-type": "ResourceInUseException"}
    async with subscribed(initial_response(), frame(headers, b"[" * 200_000)) as events:
        with pytest.raises(ResourceInUseError):
            await anext(events)


async def test_the_initial_response_may_be_missing():
    async with subscribed(an_event(continuation="7")) as events:
        assert [response.continuation async for response in events] == ["7"]


async def test_unknown_event_types_are_skipped():
    other = frame({":message-type": "event", ":event-type": "Novelty"}, b"{}")
    async with subscribed(initial_response(), other, an_event(continuation="7")) as events:
        assert [response.continuation async for response in events] == ["7"]


async def test_events_do_not_depend_on_how_their_bytes_are_split():
    sent = initial_response() + b"".join(an_event(continuation=str(n)) for n in range(5))
    cut = [sent[at : at + 37] for at in range(0, len(sent), 37)]
    async with subscribed(*cut) as events:
        assert [response.continuation async for response in events] == ["0", "1", "2", "3", "4"]


async def test_r3_a_cancelled_read_loses_no_bytes():
    first = an_event(continuation="1")

    cancelled = asyncio.Event()

    async def pause(request):
        await cancelled.wait()

    async with subscribed(initial_response(), first[:30], pause, first[30:], an_event(continuation="2")) as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(events)
        cancelled.set()
        assert [response.continuation async for response in events] == ["1", "2"]


async def test_a_position_inside_an_aggregate_starts_at_its_sequence_number():
    async with stub_and_client() as (stub, client):
        stub.script("SubscribeToShard", [initial_response()])
        position = StartingPosition.after(SequenceNumber("49", 3))
        await (await client.subscribe_to_shard(CONSUMER, SHARD, position)).close()
        assert stub.requests == [
            (
                "SubscribeToShard",
                {
                    "ConsumerARN": CONSUMER,
                    "ShardId": SHARD.shard_id,
                    "StartingPosition": {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "49"},
                },
            )
        ]


async def test_a_refused_subscription_raises_at_once():
    async with stub_and_client() as (stub, client):
        stub.script("SubscribeToShard", refusal("ResourceInUseException", "5 seconds"))
        with pytest.raises(ResourceInUseError, match="5 seconds"):
            await client.subscribe_to_shard(CONSUMER, SHARD, StartingPosition.latest())
        assert len(stub.requests) == 1


async def test_f1_nothing_is_read_while_no_event_is_requested():
    sent = 0

    async def whole(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 400:
            await response.write(an_event(wire_record(b"x" * 100_000, "1")))
            sent += 1
        return response

    async with stub_and_client() as (stub, client):
        stub.script("SubscribeToShard", whole)
        events = await client.subscribe_to_shard(CONSUMER, SHARD, StartingPosition.trim_horizon())
        await anext(events)
        await asyncio.sleep(0.3)
        assert sent < 100  # 13 MB: socket buffers and little else
        await events.close()


async def test_f1_the_socket_is_read_only_while_an_event_is_requested():
    """The HTTP client alone reads 512 KiB ahead: half a gigabyte for a thousand paused shards."""
    go_on = asyncio.Event()
    chunks = (an_event(continuation="0"), lambda _: go_on.wait(), an_event(continuation="1"))
    async with subscribed(initial_response(), *chunks) as events:
        assert (await anext(events)).continuation == "0"
        transport = events._response.connection.transport
        assert not transport.is_reading()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert transport.is_reading()
        go_on.set()
        assert (await waiting).continuation == "1"


async def test_p6_a_paused_subscription_buffers_little_beyond_the_last_event():
    """asyncio reads 256 KiB at once: another quarter of a gigabyte for a thousand shards."""
    chunks = [an_event(wire_record(bytes(15_000), "4"), continuation=str(n)) for n in range(100)]
    ahead = []
    async with subscribed(initial_response(), *chunks) as events:
        for n in range(50):
            await asyncio.sleep(0.01)  # the server is ahead
            await anext(events)
            ahead.append(events._response.content.total_bytes - (n + 1) * len(chunks[0]))
    assert max(ahead) < 300 * 1024
    assert max(ahead[20:]) <= 64 * 1024  # the bytes that arrived with the head are consumed by now


class OtherLoopTransport:
    """A transport as of another event loop: uvloop's accepts no further attributes."""

    __slots__ = ("paused",)

    def pause_reading(self):
        self.paused = True


async def test_reading_is_paused_on_any_event_loop():
    transport = OtherLoopTransport()
    EventSubscription(
        SimpleNamespace(content=None, connection=SimpleNamespace(transport=transport)), SHARD, bytearray(9)
    )
    assert transport.paused


# Frames are complete however the bytes are split, and a malformed one is an error before its bytes are awaited.


class Content:
    """A body that arrives in these chunks."""

    def __init__(self, *chunks):
        self._chunks = list(chunks)

    async def readany(self):
        return self._chunks.pop(0) if self._chunks else b""


def a_frame(number):
    return frame({":message-type": "event", "number": str(number)}, b"payload %d" % number * 9)


async def frames_of(*chunks):
    reader, frames = FrameReader(Content(*chunks)), []
    while (each := await reader.next()) is not None:
        frames.append(each)
    return frames


@pytest.mark.parametrize("length", [1, 5, 12, 100, 10_000])
async def test_frames_do_not_depend_on_how_the_bytes_are_split(length):
    sent = b"".join(map(a_frame, range(4)))
    frames = await frames_of(*(sent[at : at + length] for at in range(0, len(sent), length)))
    assert [each.headers["number"] for each in frames] == ["0", "1", "2", "3"]
    assert [bytes(each.payload) for each in frames] == [b"payload %d" % number * 9 for number in range(4)]


async def test_an_empty_payload_is_a_frame():
    (only,) = await frames_of(frame({}, b""))
    assert (dict(only.headers), bytes(only.payload)) == ({}, b"")


async def test_f3_a_changed_byte_of_the_payload_or_of_a_header_is_an_error():
    for at in (20, -8):
        changed = bytearray(a_frame(1))
        changed[at] ^= 1
        with pytest.raises(ChecksumMismatch):
            await frames_of(bytes(changed))


@pytest.mark.parametrize(
    ("length", "headers", "error"),
    [
        (20, 5, InvalidHeadersLength),
        (15, 0, InvalidHeadersLength),
        (2**20 + 16, 2**20, InvalidHeadersLength),
        (2**31, 0, InvalidPayloadLength),
    ],
)
async def test_f3_impossible_lengths_are_an_error_before_their_bytes_arrive(length, headers, error):
    lengths = struct.pack("!II", length, headers)
    with pytest.raises(error):
        await frames_of(lengths + struct.pack("!I", zlib.crc32(lengths)))


@pytest.mark.parametrize("kept", [1, 11, 12, 30])
async def test_f2_the_frame_reader_takes_the_end_inside_a_frame_for_an_error(kept):
    with pytest.raises(TruncatedStreamError):
        await frames_of(a_frame(0), a_frame(1)[:kept])


CUT = [
    b"\x01a\x04\x00",
    b"\x01a\x07\x00",
    b"\x01a\x07\x00\x05ab",
    b"\x01a\x06\x00\x05ab",
    b"\x01a\x09ab",
    b"\x01a",
    b"\x09a",
]


@pytest.mark.parametrize("headers", [b"\x01a\x0b", b"\x01\xff\x07\x00\x00", *CUT])
async def test_truncated_or_unknown_headers_with_correct_checksums_are_malformed(headers):
    prelude = struct.pack("!II", 16 + len(headers), len(headers))
    sealed = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers
    with pytest.raises((MalformedResponseError, ParserError)):
        await frames_of(sealed + struct.pack("!I", zlib.crc32(sealed)))
