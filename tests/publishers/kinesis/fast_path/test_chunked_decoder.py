"""Chunked bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError
from recordpublisher.publishers.kinesis.fast_path.http1_response import ChunkedDecoder


def fed(wire, parts):
    chunks, kept, at = ChunkedDecoder(), b"", 0
    for part in (*parts, len(wire)):
        data = kept + wire[at : at + part]
        at += part
        kept = data[chunks.feed(data) :]
    return chunks, kept


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(1, 9), max_size=99), st.booleans())
def test_the_content_is_the_same_in_any_parts(contents, parts, extended):
    more = b";a=b" if extended else b""
    wire = b"".join(b"%X%b\r\n%b\r\n" % (len(content), more, content) for content in contents)
    trailer = b"X-Sum: 1\r\n" if extended else b""
    chunks, left = fed(wire + b"0\r\n" + trailer + b"\r\n" + b"next", parts)
    assert chunks.is_done
    assert (bytes(chunks.content), left) == (b"".join(contents), b"next")


def test_an_incomplete_body_is_not_done():
    chunks, _ = fed(b"5\r\nabcde\r\n0\r\n", [])
    assert not chunks.is_done


@pytest.mark.parametrize("wire", [b"zz\r\n", b"-1\r\n", b"\r\n", b"2\r\nabc\r\n", b"2\r\nab\r\n \r\n", b"1" * 9000])
def test_malformed_chunks_are_refused(wire):
    with pytest.raises(MalformedResponseError):
        fed(wire, [])
