"""A response with very many sub-records becomes several batches, each made when the one before was taken (P2, P6, F1)."""

import asyncio
import hashlib
from itertools import pairwise

import pytest

from recordpublisher.publishers.aggregation.deaggregation import MAX_BATCH_BYTES, STEP_BYTES, Deaggregator
from recordpublisher.publishers.aggregation.kpl_format import STEP
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RECORD_OVERHEAD_BYTES, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

from servers.kpl_aggregates import sealed, varint

SHARD = Shard("orders", "shardId-0")
CHILD = Shard("orders", "shardId-1", parents=("shardId-0",))
START = StartingPosition.trim_horizon()
KEY = b"\x0a\x01a"
PART = b"\x1a\x05\x08\x00\x1a\x01x"
WITH_HASH_KEY = b"\x1a\x07\x08\x00\x10\x00\x1a\x01x"
STEPS_OF_A_BATCH = -(-MAX_BATCH_BYTES // (RECORD_OVERHEAD_BYTES * STEP))
"""So many steps of records with almost no data fill a batch."""
MANY = 3 * STEPS_OF_A_BATCH * STEP + 5


def record(sequence, message):
    return UserRecord(sealed(message), sequence, 1.5, "outer")


def part_of(size):
    part = b"\x08\x00\x1a" + varint(size) + bytes(size)
    return b"\x1a" + varint(len(part)) + part


def long_record(sequence="49", count=MANY):
    return record(sequence, KEY + PART * count)


def batches_of(*records, shard=SHARD, start=START, metrics=None, behind=0):
    response = ReadResponse(list(records), behind, child_shards=(CHILD,))
    read_position = SequenceNumber(records[-1].sequence_number)
    return Deaggregator(shard, metrics or ShardMetrics()).batches(response, read_position, start)


async def read(*records, **more):
    return [batch async for batch in batches_of(*records, **more)]


async def test_p6_no_batch_takes_more_than_its_limit_and_one_step():
    batches = await read(long_record("1"), long_record("2"))
    assert sum(len(batch) for batch in batches) == 2 * MANY
    assert len(batches) == 7
    assert all(batch.held_bytes < MAX_BATCH_BYTES + STEP * (RECORD_OVERHEAD_BYTES + len(PART)) for batch in batches)


async def test_p6_a_batch_is_made_when_it_is_asked_for():
    metrics = ShardMetrics()
    batches = batches_of(long_record(), metrics=metrics)
    first = await anext(batches)
    assert metrics.number_of_deaggregated_records == len(first) < MANY


async def test_p2_every_batch_has_the_position_after_it():
    batches = await read(long_record("1", MANY), long_record("2", 3))
    lengths = [len(batch) for batch in batches]
    assert [batch.read_position for batch in batches[:3]] == [
        SequenceNumber("1", sum(lengths[:number]) - 1) for number in (1, 2, 3)
    ]
    assert batches[3].read_position == SequenceNumber("2")
    assert len(batches) == 4


async def test_p2_a_batch_may_end_with_a_whole_record():
    batches = await read(long_record("1", STEPS_OF_A_BATCH * STEP), UserRecord(b"plain", "2", 1.5, "k"))
    assert [batch.read_position for batch in batches] == [SequenceNumber("1"), SequenceNumber("2")]
    assert batches[1].data == [b"plain"]


async def test_p2_a_batch_that_plain_records_fill_ends_before_a_long_aggregate():
    large = UserRecord(bytes(MAX_BATCH_BYTES), "1", 1.5, "k")
    batches = await read(large, long_record("2", STEP + 1))
    assert [len(batch) for batch in batches] == [1, STEP + 1]
    assert [batch.read_position for batch in batches] == [SequenceNumber("1"), SequenceNumber("2")]


async def test_p6_plain_records_fill_a_batch_as_aggregates_do():
    large = [UserRecord(bytes(MAX_BATCH_BYTES), str(number), 1.5, "k") for number in (1, 2)]
    batches = await read(*large, record("3", KEY + PART))
    assert [len(batch) for batch in batches] == [1, 1, 1]


async def test_p2_a_restart_after_any_batch_reads_exactly_the_rest():
    records = long_record("1"), long_record("2", 10)
    batches = await read(*records)
    places = [(r.sequence_number, r.sub_sequence_number) for batch in batches for r in batch.records]
    done = 0
    for batch in batches[:-1]:
        done += len(batch)
        rest = await read(*records, start=StartingPosition.after(batch.read_position))
        assert [(r.sequence_number, r.sub_sequence_number) for b in rest for r in b.records] == places[done:]


async def test_a_part_of_a_response_is_as_far_behind_as_its_last_record():
    batches = await read(long_record("1", STEPS_OF_A_BATCH * STEP), UserRecord(b"plain", "2", 4.0, "k"), behind=50)
    assert [batch.millis_behind_latest for batch in batches] == [2550, 50]


@pytest.mark.parametrize(("behind", "expected"), [(0, None), (70, 70), (None, None)])
async def test_only_the_last_batch_is_at_the_tip_and_has_the_children(behind, expected):
    *others, last = await read(long_record(), behind=behind)
    assert {batch.millis_behind_latest for batch in others} == {expected}
    assert {batch.child_shards for batch in others} == {()}
    assert (last.millis_behind_latest, last.child_shards) == (behind, (CHILD,))


async def test_a1_the_batches_of_a_response_count_as_one_read():
    metrics = ShardMetrics()
    records = long_record("1"), long_record("2", 10)
    batches = await read(*records, metrics=metrics)
    size = sum(len(record.data) for record in records)
    assert (metrics.reads, metrics.bytes_per_read, metrics.bytes_read) == (1, size, size)
    assert (metrics.number_of_aggregated_records, metrics.number_of_deaggregated_records) == (2, MANY + 10)
    assert (sum(batch.raw_count for batch in batches), sum(batch.raw_bytes for batch in batches)) == (2, size)


async def test_s4_foreign_sub_records_make_no_empty_batches():
    metrics = ShardMetrics()
    none = Shard("orders", "shardId-2", hash_range=HashRange(0, 0))
    (batch,) = await read(long_record(), shard=none, metrics=metrics)
    assert (len(batch), batch.read_position) == (0, SequenceNumber("49"))
    assert metrics.foreign_sub_records == MANY


async def test_s4_a_long_aggregate_of_which_some_have_an_explicit_hash_key():
    upper = Shard("orders", "shardId-2", hash_range=HashRange(1, MAX_HASH_KEY))
    hash_key = b"\x12\x010"
    count = STEP + 3
    (batch,) = await read(record("1", KEY + hash_key + PART + WITH_HASH_KEY + PART * count), shard=upper)
    assert batch.sub_sequence_numbers == [0, *range(2, count + 2)]
    assert set(batch.explicit_hash_keys) == {None}


@pytest.mark.parametrize(
    "message", [KEY + PART * STEP * 2 + b"\x1a\x05\x08\x01\x1a\x01x", KEY + PART * STEP * 2 + PART[:-1]]
)
async def test_s4_a_long_aggregate_with_an_error_at_its_end_is_a_plain_record(message):
    (batch,) = await read(record("1", message))
    assert batch.sub_sequence_numbers == [-1]


async def turns_while(reading):
    """How many turns another task gets until the reading is done."""
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = turns
    await reading
    task.cancel()
    return turns - before


KEYS = KEY * 3 * STEP
HASH_KEYS = b"".join(b"\x12" + varint(len(text)) + text for text in [b"7"] * 3 * STEP)


@pytest.mark.parametrize(
    ("message", "turns"),
    [(KEYS + PART, 4), (KEY + HASH_KEYS + WITH_HASH_KEY, 4), (KEY + PART * 3 * STEP, 6)],
    ids=["keys", "hash-keys", "sub-records"],
)
async def test_f1_long_tables_and_long_aggregates_are_handled_in_steps(message, turns):
    almost_all = Shard("orders", "shardId-2", hash_range=HashRange(1, MAX_HASH_KEY))
    assert await turns_while(read(record("1", message), shard=almost_all)) >= turns


async def test_f1_few_large_sub_records_are_handled_in_steps_too():
    records = [record(str(number), KEY + part_of(STEP_BYTES)) for number in range(6)]
    assert await turns_while(read(*records)) >= 6


@pytest.mark.parametrize("count", [STEP, STEP + 3], ids=["short", "long"])
async def test_s4_each_key_of_a_long_table_decides(count):
    keys = [b"%d" % number for number in range(count)]
    parts = b"".join(
        b"\x1a" + varint(len(part)) + part for part in (b"\x08" + varint(at) + b"\x1a\x00" for at in range(count))
    )
    half = Shard("orders", "shardId-2", hash_range=HashRange(0, MAX_HASH_KEY // 2))
    (batch,) = await read(record("1", b"".join(b"\x0a" + varint(len(key)) + key for key in keys) + parts), shard=half)
    assert batch.partition_keys == [key.decode() for key in keys if hashlib.md5(key).digest()[0] < 128]


async def test_the_batches_are_in_order():
    batches = await read(long_record())
    assert all(
        before.records[-1].sub_sequence_number + 1 == after.records[0].sub_sequence_number
        for before, after in pairwise(batches)
    )
