"""Our frames are parsed with the SDK's parser."""

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer

from recordpublisher.local import event_stream as eventstream


def parse(raw: bytes) -> list[tuple[dict[str, object], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(raw)
    return [(dict(message.headers), message.payload) for message in buffer]


def test_several_frames_are_parsed():
    raw = eventstream.event("initial-response", b"{}") + eventstream.event("SubscribeToShardEvent", b'{"Records":[]}')
    (first, _), (second, payload) = parse(raw)
    assert first[":event-type"] == "initial-response"
    assert second[":event-type"] == "SubscribeToShardEvent"
    assert second[":message-type"] == "event"
    assert payload == b'{"Records":[]}'


def test_an_exception_frame_has_its_code():
    [(headers, payload)] = parse(eventstream.exception("ResourceInUseException", 'a "message"'))
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == "ResourceInUseException"
    assert payload == b'{"message":"a \\"message\\""}'


def test_a_corrupted_frame_has_a_wrong_checksum():
    with pytest.raises(ChecksumMismatch):
        parse(eventstream.corrupted(eventstream.event("SubscribeToShardEvent", b'{"Records":[]}')))
