"""Memory of columns is written over only when nothing refers to it any more, and given back when a stream becomes quiet."""

import gc
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.plugins.columns.record_columns import binary_column
from recordpublisher.plugins.spark.arrow_rows import ROWS_PER_BATCH, ArrowRows, ReusedMemory
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import run_virtual

BIG, SMALL = [bytes(100)] * 1_000, [b"small"]


def address(view):
    return pa.py_buffer(view).address


def test_memory_is_used_again_when_its_column_is_gone():
    memory = ReusedMemory()
    first = address(memory.joined([BIG]))
    assert address(memory.joined([BIG])) == first


@pytest.mark.slow
def test_memory_is_not_written_over_while_something_refers_to_it():
    memory = ReusedMemory()
    column = binary_column([BIG, BIG], memory.joined)
    part = pa.RecordBatch.from_arrays([column], ["data"]).slice(900, 200)
    del column
    gc.collect()
    other = binary_column([SMALL], memory.joined)
    assert part["data"].to_pylist() == BIG[:200]
    assert other.to_pylist() == SMALL


def test_a_shorter_column_does_not_have_the_end_of_a_longer_one():
    memory = ReusedMemory()
    memory.joined([BIG])
    assert bytes(memory.joined([SMALL])) == b"small"


def test_a_window_that_needs_little_gives_the_memory_back():
    memory = ReusedMemory()
    for _ in range(2):
        memory.begin_window()
        kept = [memory.joined([BIG]) for _ in range(3)]
        assert len(memory._buffers) == 3
        del kept
    memory.begin_window()
    assert len(memory._buffers) == 3
    memory.joined([SMALL])
    memory.begin_window()
    assert memory._buffers == []


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_columns_of_any_lifetime_keep_their_values(draw: random.Random):
    memory, alive = ReusedMemory(), []
    for number in range(40):
        if draw.random() < 0.2:
            memory.begin_window()
        values = [bytes([number]) * draw.randrange(3_000) for _ in range(draw.randrange(5))]
        alive.append((binary_column([values], memory.joined), values))
        while alive and draw.random() < 0.5:
            del alive[draw.randrange(len(alive))]
        assert all(column.to_pylist() == kept for column, kept in alive)


def test_windows_of_one_process_use_the_same_memory():
    """Rows of a window that was handed over, but not dropped yet, are in memory of their own."""
    memory, shard = ReusedMemory(), Shard("s", "a")

    async def window(text):
        rows = ArrowRows(memory=memory)
        for _ in range(2):
            await rows.write(RecordBatch(shard, [UserRecord(text, "1")] * ROWS_PER_BATCH))
        return rows

    async def job():
        for number in range(4):
            late = list((await window(b"late %d" % number)).drain())
            rows = list((await window(b"window %d" % number)).drain())
            assert {each for batch in rows for each in batch["data"].to_pylist()} == {b"window %d" % number}
            assert {each for batch in late for each in batch["data"].to_pylist()} == {b"late %d" % number}
        return len(memory._buffers)

    assert run_virtual(job()) == 4
