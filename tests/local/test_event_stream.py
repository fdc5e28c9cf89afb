"""The SDK's own parser reads our frames."""

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer

from recordpublisher.local import event_stream as eventstream


def parse(raw: bytes) -> list[tuple[dict[str, object], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(raw)
    return [(dict(message.headers), message.payload) for message in buffer]


def test_frames_follow_each_other():
    raw = eventstream.event("initial-response", b"{}") + eventstream.event("SubscribeToShardEvent", b'{"Records":[]}')
    (first, _), (second, payload) = parse(raw)
    assert first[":event-type"] == "initial-response"
    assert second[":event-type"] == "SubscribeToShardEvent"
    assert second[":message-type"] == "event"
    assert payload == b'{"Records":[]}'


def test_an_exception_names_its_code():
    [(headers, payload)] = parse(eventstream.exception("ResourceInUseException", 'a "message"'))
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == "ResourceInUseException"
    assert payload == b'{"message":"a \\"message\\""}'


def test_a_corrupted_frame_fails_its_check():
    with pytest.raises(ChecksumMismatch):
        parse(eventstream.corrupted(eventstream.event("SubscribeToShardEvent", b'{"Records":[]}')))
