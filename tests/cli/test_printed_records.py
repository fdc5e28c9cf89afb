"""Which records `tail` prints, and how."""

import json

import pytest

import recordpublisher as rp
from recordpublisher.cli.printed_records import is_chosen, json_line, pattern

from fakes.batches import batch


def record(data=b"text"):
    (made,) = batch(data)
    return made


def printed(data):
    return json.loads(json_line(record(data)))["data"]


def test_a_line_has_every_field_of_a_record():
    assert json.loads(json_line(record(b"hello"))) == {
        "stream": "orders",
        "shardId": "shardId-0",
        "sequenceNumber": "1",
        "subSequenceNumber": -1,
        "partitionKey": "key",
        "approximateArrivalTimestamp": "2023-11-14T22:13:20.500+00:00",
        "eventTime": 1_700_000_000_500,
        "data": "hello",
    }


@pytest.mark.parametrize("data", [b'{"id": 1, "big": 123456789012345678901234567890}', b' [1, {"a": "\xc3\xa9"}]\n'])
def test_an_object_or_array_is_printed_as_json(data):
    line = json_line(record(data))
    assert line.count(b"\n") == 1
    assert json.loads(line)["data"] == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [b"text", "é 😀\n".encode(), b"5", b'"quoted"', b"{broken", b'{"a": 1} {"b": 2}', b"[" * 5_000, b""],
    ids=["text", "unicode", "number", "string", "broken", "two", "deep", "empty"],
)
def test_anything_else_is_printed_as_text(data):
    assert printed(data) == data.decode()


def test_bytes_that_are_no_text_are_marked_as_base64():
    fields = json.loads(json_line(record(b"{\xff}")))
    assert (fields["data"], fields["base64"]) == ("e/99", True)


@pytest.mark.parametrize(
    ("key", "content", "expected"), [(None, None, True), ("^k", "ex", True), ("x", None, False), (None, "^ex", False)]
)
def test_key_and_payload_must_both_match(key, content, expected):
    assert is_chosen(record(), pattern("--key", key), pattern("--grep", content)) is expected


def test_a_wrong_pattern_names_its_option():
    with pytest.raises(rp.ConfigurationError, match=r"--grep.*regular expression"):
        pattern("--grep", "(")
