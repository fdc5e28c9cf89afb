"""A body that is decoded while it arrives gives the same result as one that is decoded at once."""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.publishers.kinesis import codec as decoder_module
from recordpublisher.publishers.kinesis.codec import MIN_PIECE_BYTES, IncrementalReadDecoder, decode_read

from servers.event_frames import wire_record

COMPACT = (",", ":")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(decoder_module, "MIN_PIECE_BYTES", 1)


def arrived(body, parts):
    """The decoded body that arrives in parts of these sizes, and the most bytes that were ever buffered."""
    reader, kept, at, most = IncrementalReadDecoder(), b"", 0, 0
    for part in (*parts, len(body)):
        stop = min(at + part, len(body))
        data = bytearray(kept + body[at:stop])
        before, at = bytes(data), stop
        consumed = reader.feed(memoryview(data), at == len(body))
        assert bytes(data) == before, "bytes that were not consumed must not change"
        kept = before[consumed:]
        most = max(most, len(kept))
        if at == len(body):
            break
    assert kept == b""
    return reader.body, most


def body_of(records, separators=COMPACT, **more):
    return json.dumps({**more, "Records": records, "Z": [{"A": 1}, {"B": 2}]}, separators=separators).encode()


KEYS = st.text(max_size=20) | st.sampled_from(
    ['},{"', '}, {"', '"}, {"D', '"},{"D', "},{", "\\", '\\"},{"Data":', '"Records":[']
)


@settings(max_examples=150, deadline=None)
@given(
    keys=st.lists(KEYS, max_size=12),
    parts=st.lists(st.integers(1, 300), max_size=60),
    spaced=st.booleans(),
    first=st.booleans(),
)
def test_any_body_decodes_the_same_in_any_parts(keys, parts, spaced, first):
    records = [
        {**wire_record(bytes(n), str(n), arrival=n + 0.5), "PartitionKey": key, "New": {"x": [{"y": 1}, {"z": 2}]}}
        for n, key in enumerate(keys)
    ]
    more = {"NextShardIterator": '},{"A', "MillisBehindLatest": 3, "ChildShards": [{"ShardId": "a"}, {"ShardId": "b"}]}
    body = body_of(records, None if spaced else COMPACT, **more)
    if first:
        body = json.dumps(json.loads(body), separators=COMPACT, sort_keys=False).encode()
    assert arrived(body, parts)[0] == decode_read(body)


@pytest.mark.parametrize("separators", [COMPACT, (", ", ": ")])
def test_complete_records_are_not_buffered(separators):
    records = [wire_record(random.Random(1).randbytes(200), str(n), arrival=1.0) for n in range(500)]
    body = body_of(records, separators, NextShardIterator="n")
    found, most = arrived(body, [1000] * 1000)
    assert found == decode_read(body)
    assert most < 3000


def test_a_body_that_cannot_be_split_is_buffered_and_decoded_at_once():
    body = body_of([wire_record(b"x", str(n), arrival=1.0) for n in range(50)], (",\n", ": "))
    found, most = arrived(body, [100] * 1000)
    assert found == decode_read(body)
    assert most > 2000


@pytest.mark.parametrize(
    "body",
    [
        b'{"Other":{"Records":[{"Data":"","SequenceNumber":"1"},{"Data":"","SequenceNumber":"2"}]}}',
        b'{"Records":[{"Data":"","SequenceNumber":"1"},{"Data":"!","SequenceNumber":"2"},{"Data":"","SequenceNumber":"3"}]}',
        b'{"Records":[{"Data":"","SequenceNumber":"1"},{"Data":"","SequenceNumber":"2"}',
        b'{"Records":[{"Data":"","SequenceNumber":"1"},{"Data":"","SequenceNumber":"2"}}]',
        b'{"Records":[{"Data":"","SequenceNumber":"1"},{"Date":"","SequenceNumber":"2"},{"Data":"","SequenceNumber":"3"}]}',
        b'<html>},{"A},{"A</html>',
    ],
)
@pytest.mark.parametrize("part", [1, 7, 60, 1000])
def test_a_malformed_body_is_the_same_error_in_parts(body, part):
    with pytest.raises(msgspec.DecodeError):
        decode_read(body)
    with pytest.raises(msgspec.DecodeError):
        arrived(body, [part] * len(body))


def test_few_bytes_are_not_decoded_separately(monkeypatch):
    monkeypatch.setattr(decoder_module, "MIN_PIECE_BYTES", MIN_PIECE_BYTES)
    body = body_of([wire_record(b"x", str(n), arrival=1.0) for n in range(50)])
    assert arrived(body, [len(body) - 1])[1] == len(body) - 1
