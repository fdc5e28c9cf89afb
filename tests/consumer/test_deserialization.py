"""Deserializers: from bytes to values, one batch at a time."""

import json

import msgspec
import pytest

from recordpublisher.consumer.deserialization import (
    BytesDeserializer,
    CallableDeserializer,
    JsonDeserializer,
    TextDeserializer,
)

from fakes.batches import batch


def test_bytes_are_not_converted():
    assert BytesDeserializer().values(batch(b"a")) is None


def test_text_is_decoded_as_utf8():
    assert TextDeserializer().values(batch("grün".encode(), b"")) == ["grün", ""]


def test_json_is_decoded_to_plain_values():
    assert JsonDeserializer().values(batch(b'{"n": 1}', b"[2]", b'"x"')) == [{"n": 1}, [2], "x"]


def test_a_function_gets_whole_records():
    values = CallableDeserializer(lambda record: (record.shard_id, record.partition_key)).values(batch(b"a"))

    assert values == [("shardId-0", "key")]


@pytest.mark.parametrize("function", [json.loads, msgspec.json.decode, lambda record: record["price"]])
def test_a_function_that_takes_its_record_for_the_payload_is_told_what_it_got(function):
    hint = r'Record.*; the function got a Record: use deserializer="json", or lambda record: json.loads\(record.data\)'
    with pytest.raises(TypeError, match=hint) as raised:
        CallableDeserializer(function).values(batch(b'{"price": 1}'))
    assert type(raised.value.__cause__) is TypeError, "its traceback leads to the function's line"


def test_another_type_error_of_a_function_is_left_as_it_is():
    with pytest.raises(TypeError, match=r"^can only concatenate [^;]*$"):
        CallableDeserializer(lambda record: record.partition_key + 1).values(batch(b"a"))


@pytest.mark.parametrize(("deserializer", "data"), [(TextDeserializer(), b"\xff"), (JsonDeserializer(), b"{")])
def test_malformed_data_raises(deserializer, data):
    with pytest.raises(ValueError, match=r"."):
        deserializer.values(batch(data))
