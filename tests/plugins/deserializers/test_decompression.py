"""Compressed payloads: every format read back, its size bounded, and what is no such payload an error that says so."""

import gzip
import sys

import cramjam
import pytest

import recordpublisher as rp
from recordpublisher.plugins.deserializers.decompression import decompressor_for

COMPRESS = {"GZIP": gzip.compress, "ZSTD": cramjam.zstd.compress, "SNAPPY": cramjam.snappy.compress_raw}
FORMATS = list(COMPRESS)


def decompress(name, *payloads, max_bytes=3_000):
    given = {"flink.deserializer.compression": name, "flink.deserializer.decompressed.max.bytes": str(max_bytes)}
    return decompressor_for(rp.Properties(given)).decompress(payloads)


def compressed(name, data):
    return bytes(COMPRESS[name](data))


def test_without_the_property_nothing_is_decompressed():
    assert decompressor_for(rp.Properties({})) is None


@pytest.mark.parametrize("name", FORMATS)
def test_payloads_of_any_size_up_to_the_limit_are_read_back(name):
    payloads = [b"", b"a", b"abc" * 1_000]

    assert decompress(name, *(compressed(name, data) for data in payloads)) == payloads


@pytest.mark.parametrize("name", FORMATS)
def test_a_payload_larger_than_the_limit_is_an_error_that_names_the_limit(name):
    with pytest.raises(ValueError, match=rf"={name}\) to at most 2999 bytes \(flink.deserializer.decompressed.max"):
        decompress(name, compressed(name, b"abc" * 1_000), max_bytes=2_999)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: b"plain text", lambda whole: whole[:-1]])
def test_what_is_not_compressed_so_is_an_error(name, damage):
    with pytest.raises(ValueError, match=f"cannot be decompressed .flink.deserializer.compression={name}"):
        decompress(name, damage(compressed(name, b"abc" * 100)))


@pytest.mark.parametrize("name", ["GZIP", "ZSTD"])
def test_parts_after_each_other_are_one_payload_within_one_limit(name):
    two = compressed(name, b"ab" * 10) + compressed(name, b"c")

    assert decompress(name, two, max_bytes=21) == [b"ab" * 10 + b"c"]
    with pytest.raises(ValueError, match="at most 20 bytes"):
        decompress(name, two, max_bytes=20)


def test_very_many_empty_gzip_members_are_refused():
    with pytest.raises(ValueError, match="more than 100 gzip members"):
        decompress("GZIP", gzip.compress(b"") * 101)


def test_a_payload_does_not_change_with_the_next():
    first, second = decompress("ZSTD", compressed("ZSTD", b"first"), compressed("ZSTD", b"other"))

    assert (first, second) == (b"first", b"other")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)

    with pytest.raises(rp.ConfigurationError, match=r"SNAPPY.*pip install .*\[compression\]'"):
        decompress("SNAPPY")
