"""Deserializers: from bytes to values, one batch at a time."""

import pytest

from recordpublisher.consumer.deserialization import (
    BytesDeserializer,
    CallableDeserializer,
    JsonDeserializer,
    TextDeserializer,
)

from fakes.batches import batch


def test_bytes_need_no_work():
    assert BytesDeserializer().values(batch(b"a")) is None


def test_text_is_utf8():
    assert TextDeserializer().values(batch("grün".encode(), b"")) == ["grün", ""]


def test_json_gives_plain_values():
    assert JsonDeserializer().values(batch(b'{"n": 1}', b"[2]", b'"x"')) == [{"n": 1}, [2], "x"]


def test_a_function_sees_whole_records():
    values = CallableDeserializer(lambda record: (record.shard_id, record.partition_key)).values(batch(b"a"))

    assert values == [("shardId-0", "key")]


@pytest.mark.parametrize(("deserializer", "data"), [(TextDeserializer(), b"\xff"), (JsonDeserializer(), b"{")])
def test_what_is_not_readable_raises(deserializer, data):
    with pytest.raises(ValueError, match=r"."):
        deserializer.values(batch(data))
