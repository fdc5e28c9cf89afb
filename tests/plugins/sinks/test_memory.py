"""The memory sink."""

import pytest

from recordpublisher import SinkError
from recordpublisher.plugins.sinks.callback import MemorySink

from fakes.batches import batch


async def test_records_are_kept_in_order_of_writing():
    sink = MemorySink()
    await sink.write(batch(b"a", b"b"))
    assert [record.data for record in sink.records] == [b"a", b"b"]

    await sink.write(batch(b"c", shard_id="shardId-1"))

    assert [(record.shard_id, record.data) for record in sink.records[1:]] == [("shardId-0", b"b"), ("shardId-1", b"c")]
    assert [len(written) for written in sink.batches] == [2, 1]


async def test_watermarks_are_kept():
    sink = MemorySink()
    await sink.watermark(5)
    await sink.watermark(7)

    assert sink.watermarks == [5, 7]


async def test_a_write_past_the_limit_fails_and_drops_nothing():
    sink = MemorySink(limit=2)
    await sink.write(batch(b"a"))

    with pytest.raises(SinkError, match="holds 1 records, and this batch would exceed its limit of 2"):
        await sink.write(batch(b"b", b"c"))

    assert [record.data for record in sink.records] == [b"a"]
