"""The JSON line of a record."""

import msgspec
import pytest

from recordpublisher.cli.commands.tail import as_json

from fakes.batches import batch


def line(payload: bytes) -> dict[str, object]:
    (record,) = batch(payload)
    return msgspec.json.decode(msgspec.json.encode(as_json(record)))


def test_a_line_has_every_field_of_a_record():
    assert line(b"hello") == {
        "stream": "orders",
        "shardId": "shardId-0",
        "sequenceNumber": "1",
        "subSequenceNumber": -1,
        "partitionKey": "key",
        "approximateArrivalTimestamp": "2023-11-14T22:13:20.500+00:00",
        "eventTime": 1_700_000_000_500,
        "data": "hello",
    }


@pytest.mark.parametrize("text", ["", "é 😀", "a\nb\x00", '{"a": 1}'])
def test_text_is_shown_as_text(text):
    shown = line(text.encode())

    assert shown["data"] == text
    assert "base64" not in shown


def test_other_bytes_are_marked_as_base64():
    shown = line(b"\xff\x00")

    assert (shown["data"], shown["base64"]) == ("/wA=", True)
