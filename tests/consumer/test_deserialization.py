"""Deserializers: from bytes to values, one batch at a time."""

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


@pytest.mark.parametrize(("deserializer", "data"), [(TextDeserializer(), b"\xff"), (JsonDeserializer(), b"{")])
def test_malformed_data_raises(deserializer, data):
    with pytest.raises(ValueError, match=r"."):
        deserializer.values(batch(data))
