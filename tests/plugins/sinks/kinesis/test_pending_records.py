import pytest

from recordpublisher.plugins.sinks.kinesis.pending_records import (
    PendingRecord,
    are_obviously_valid,
    is_obviously_valid,
    rejection_reason,
    size_of,
)


def reason(data=b"x", key="k", hash_key=None, largest=2**20):
    return rejection_reason(PendingRecord(data, key, hash_key, size_of(data, key)), largest)


@pytest.mark.parametrize("hash_key", [None, "0", str(2**128 - 1)])
def test_valid_records(hash_key):
    assert reason(hash_key=hash_key) is None
    assert reason(key="é" * 256) is None


@pytest.mark.parametrize("key", ["", "k" * 257])
def test_a_key_has_1_to_256_characters(key):
    assert f"{len(key)} characters" in reason(key=key)


@pytest.mark.parametrize("hash_key", ["", "-1", "01", "1e3", "x", str(2**128), "٣"])
def test_an_explicit_hash_key_is_a_decimal_number_of_128_bits(hash_key):
    assert "explicit hash key" in reason(hash_key=hash_key)


def test_k4_keys_count_in_utf_8():
    assert reason(bytes(98), "é", largest=100) is None
    assert "101 bytes" in reason(bytes(99), "é", largest=100)


@pytest.mark.parametrize(
    ("data", "key", "hash_key", "expected"),
    [
        (b"x", "k", None, True),
        (b"x", "k" * 256, None, True),
        (b"x", "k" * 257, None, False),
        (b"x", "", None, False),
        (b"x", "é", None, False),
        (b"x", "k", "", False),
        (b"x", "k", "0", False),
        (bytes(299), "k", None, True),
        (bytes(300), "k", None, False),
    ],
)
def test_many_are_obviously_valid_if_each_is(data, key, hash_key, expected):
    one, others = PendingRecord(data, key, hash_key, size_of(data, key)), [PendingRecord(b"x", "k", None, 2)] * 3

    assert is_obviously_valid(one, 300) is are_obviously_valid([*others, one], 300) is expected


def test_no_records_are_not_obviously_valid():
    assert not are_obviously_valid([], 100)
