import asyncio
import hashlib
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.publishers.aggregation.deaggregation import Deaggregator, ForeignSubRecords, records_after
from recordpublisher.publishers.aggregation.kpl_format import STEP, hash_key_of
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

from servers.kpl_aggregates import MAGIC, aggregate, sealed, varint

WHOLE = Shard("orders", "shardId-0")
START = StartingPosition.trim_horizon()


def raw(data, sequence="49", key="outer"):
    return UserRecord(data, sequence, 1.5, key)


async def batches_of(*records, shard=WHOLE, start=START, metrics=None, **more):
    response = ReadResponse(list(records), 0)
    read_position = SequenceNumber(records[-1].sequence_number) if records else None
    batches = Deaggregator(shard, metrics or ShardMetrics(), **more).batches(response, read_position, start)
    return [batch async for batch in batches]


async def deaggregated(*records, **more):
    return [record for batch in await batches_of(*records, **more) for record in batch.records]


def hash_of(key):
    return int(hashlib.md5(key.encode()).hexdigest(), 16)


async def test_s4_sub_records_have_their_keys_order_and_the_records_sequence_number():
    data = aggregate(("a", b"1"), ("b", b"2", "170141183460469231731687303715884105728"), ("a", b"3"))
    assert await deaggregated(raw(data)) == [
        UserRecord(b"1", "49", 1.5, "a", None, 0),
        UserRecord(b"2", "49", 1.5, "b", "170141183460469231731687303715884105728", 1),
        UserRecord(b"3", "49", 1.5, "a", None, 2),
    ]


async def test_plain_records_and_aggregates_keep_their_order():
    records = await deaggregated(raw(b"x", "1"), raw(aggregate(("a", b"y")), "2"), raw(b"z", "3"))
    assert [(r.data, r.sub_sequence_number) for r in records] == [(b"x", -1), (b"y", 0), (b"z", -1)]


async def test_a_batch_without_aggregates_is_returned_unchanged():
    records = [raw(b"x"), raw(b"", key=None)]
    (batch,) = await batches_of(*records)
    assert all(read is given for read, given in zip(batch.records, records, strict=True))


BAD_UTF8 = b"\x0a\x02\xff\xfe\x1a\x05\x08\x00\x1a\x01x"
NO_SUCH_KEY = b"\x0a\x01a\x1a\x05\x08\x07\x1a\x01x"
NO_SUCH_HASH_KEY = b"\x0a\x01a\x12\x011\x1a\x07\x08\x00\x10\x09\x1a\x01x"
NO_DATA = b"\x0a\x01a\x1a\x02\x08\x00"
NOTHING = b"\x0a\x01a" + b"\x1a\x00" * 3


@pytest.mark.parametrize(
    "data",
    [
        MAGIC,
        MAGIC + b"short",
        aggregate(("a", b"1"))[:-1] + b"\x00",
        b"\x00" + aggregate(("a", b"1")),
        sealed(b"\xff\xff not protobuf"),
        sealed(BAD_UTF8),
        sealed(NO_SUCH_KEY),
        sealed(NO_SUCH_HASH_KEY),
        sealed(NO_DATA),
        sealed(NOTHING),
    ],
    ids=[
        "magic",
        "short",
        "digest",
        "magic-later",
        "message",
        "utf8",
        "key-index",
        "hash-key-index",
        "no-data",
        "nothing",
    ],
)
async def test_s4_a_malformed_aggregate_is_a_plain_record(data):
    assert await deaggregated(raw(data)) == [raw(data)]


async def test_s4_tags_and_unknown_fields_are_ignored():
    tag = b"\x22\x05\x0a\x03tag"
    inner = b"\x08\x00\x1a\x01x" + tag
    (record,) = await deaggregated(raw(sealed(b"\x0a\x01a\x1a" + varint(len(inner)) + inner)))
    assert (record.data, record.partition_key) == (b"x", "a")


@pytest.mark.parametrize(
    "inner",
    [b"\x08\x00\x1a\x01x\x1a\x01y", b"\x1a\x01y\x08\x00", b"\x08\x07\x08\x00\x1a\x01y"],
    ids=["data-twice", "data-first", "key-twice"],
)
async def test_s4_a_sub_record_is_parsed_by_the_rules_of_protobuf(inner):
    """The fields may come in any order, and the last one wins."""
    part = b"\x1a" + varint(len(inner)) + inner
    records = await deaggregated(raw(sealed(part + b"\x0a\x01a" + part)))
    assert [(r.data, r.partition_key, r.sub_sequence_number) for r in records] == [(b"y", "a", 0), (b"y", "a", 1)]


async def test_s4_an_empty_aggregate_has_no_records():
    assert await deaggregated(raw(sealed(b""))) == []


async def test_s4_foreign_sub_records_are_dropped_counted_and_included_in_the_numbering():
    keys = sorted(["a", "b", "c", "d"], key=hash_of)
    own_range = HashRange(hash_of(keys[1]), hash_of(keys[2]))
    metrics = ShardMetrics()
    records = await deaggregated(
        raw(aggregate(*[(key, key.encode()) for key in keys])),
        shard=Shard("orders", "shardId-1", hash_range=own_range),
        metrics=metrics,
    )
    assert [(r.partition_key, r.sub_sequence_number) for r in records] == [(keys[1], 1), (keys[2], 2)]
    assert metrics.foreign_sub_records == 2


async def test_s4_a_long_aggregate_is_numbered_and_filtered_as_a_whole():
    upper = Shard("orders", "shardId-1", hash_range=HashRange(1, MAX_HASH_KEY))
    parts = [("a", b"%d" % number, str(number % 3)) for number in range(2 * STEP + 5)]
    records = await deaggregated(raw(aggregate(*parts)), shard=upper)
    assert [r.sub_sequence_number for r in records] == [number for number in range(len(parts)) if number % 3]
    assert all(r.data == b"%d" % r.sub_sequence_number for r in records)


async def test_s4_an_explicit_hash_key_decides_the_shard():
    upper = Shard("orders", "shardId-1", hash_range=HashRange(2**127, MAX_HASH_KEY))
    records = await deaggregated(raw(aggregate(("a", b"1", "0"), ("a", b"2", str(MAX_HASH_KEY)))), shard=upper)
    assert [r.data for r in records] == [b"2"]


async def test_s4_with_an_explicit_hash_key_that_is_no_number_the_partition_key_decides():
    own = Shard("orders", "shardId-1", hash_range=HashRange(hash_of("a"), hash_of("a")))
    records = await deaggregated(raw(aggregate(("a", b"1", "zero"), ("b", b"2", "zero"))), shard=own)
    assert [(r.data, r.explicit_hash_key) for r in records] == [(b"1", "zero")]


@pytest.mark.parametrize("text", ["1" * 4301, str(MAX_HASH_KEY + 1), "-1", "1_0", "٣", ""], ids=repr)
async def test_s4_with_an_explicit_hash_key_outside_128_bits_the_partition_key_decides(text):
    own = Shard("orders", "shardId-1", hash_range=HashRange(hash_of("a"), hash_of("a")))
    records = await deaggregated(raw(aggregate(("a", b"1", text), ("b", b"2", text))), shard=own)
    assert [(r.data, r.explicit_hash_key) for r in records] == [(b"1", text)]


SUB_RECORDS = st.lists(
    st.one_of(
        st.tuples(st.text(max_size=4), st.binary(max_size=3)),
        st.tuples(st.text(max_size=4), st.binary(max_size=3), st.integers(0, MAX_HASH_KEY).map(str)),
    ),
    max_size=8,
)
MIXED = st.lists(st.one_of(SUB_RECORDS.map(lambda parts: aggregate(*parts)), st.binary(max_size=5)), max_size=5)


@given(SUB_RECORDS)
def test_s4_every_sub_record_keeps_its_own_fields(parts):
    """Some have an explicit hash key, and others have none."""
    expected = [(key, data, *(hash_key or [None])) for key, data, *hash_key in parts]
    records = asyncio.run(deaggregated(raw(aggregate(*parts))))
    assert [(r.partition_key, r.data, r.explicit_hash_key) for r in records] == expected


@given(payloads=MIXED, middle=st.integers(0, MAX_HASH_KEY - 1))
def test_s4_what_one_half_of_a_split_shard_drops_the_other_half_keeps(payloads, middle):
    records = [raw(data, str(number)) for number, data in enumerate(payloads)]
    halves = HashRange(0, middle), HashRange(middle + 1, MAX_HASH_KEY)

    async def read(own):
        return await deaggregated(*records, shard=Shard("orders", "shardId-1", hash_range=own))

    whole, low, high = (asyncio.run(read(own)) for own in (HashRange(), *halves))
    plain = [record for record in whole if record.sub_sequence_number < 0]
    place = attrgetter("sequence_number", "sub_sequence_number")
    assert sorted(low + high, key=place) == sorted(whole + plain, key=place)


@given(payloads=MIXED)
def test_p2_a_restart_after_any_record_of_a_mixed_batch_reads_exactly_the_rest(payloads):
    records = [raw(data, str(number)) for number, data in enumerate(payloads)]
    whole = asyncio.run(deaggregated(*records))
    for number, record in enumerate(whole):
        done = SequenceNumber(record.sequence_number, record.sub_sequence_number)
        rest = records[int(done.sequence) + (not done.is_inside_aggregate) :]
        assert asyncio.run(deaggregated(*rest, start=StartingPosition.after(done))) == whole[number + 1 :]


async def test_s4_with_auto_distribution_all_sub_records_are_kept_after_one_check():
    checked = []

    async def keep(arrival_ms, is_misplaced):
        checked.append(arrival_ms)
        return ForeignSubRecords.KEEP

    nothing = Shard("orders", "shardId-1", hash_range=HashRange(0, 0))
    metrics = ShardMetrics()
    data = aggregate(("a", b"1"), ("b", b"2"))
    records = await deaggregated(
        raw(data, "1"), raw(data, "2"), shard=nothing, metrics=metrics, foreign_sub_records=keep
    )
    assert len(records) == 4
    assert (checked, metrics.foreign_sub_records, metrics.unchecked_sub_records) == ([1500.0], 0, 0)


@pytest.mark.parametrize(("first", "is_misplaced"), [("a", False), ("b", True)])
async def test_s4_a_record_is_misplaced_when_its_first_sub_record_is_foreign(first, is_misplaced):
    asked = []

    async def keep(arrival_ms, is_misplaced):
        asked.append(is_misplaced)
        return ForeignSubRecords.KEEP_MISPLACED

    own = HashRange(hash_key_of("a", None), hash_key_of("a", None))
    metrics = ShardMetrics()
    second = "b" if first == "a" else "a"
    data = aggregate((first, b"1"), (second, b"2"))
    shard = Shard("orders", "shardId-1", hash_range=own)
    records = await deaggregated(raw(data, "1"), shard=shard, metrics=metrics, foreign_sub_records=keep)
    assert ([record.data for record in records], asked) == ([b"1", b"2"], [is_misplaced])
    assert (metrics.foreign_sub_records, metrics.unchecked_sub_records) == (0, 0)


async def test_s4_unchecked_foreign_sub_records_are_kept_and_counted():
    async def keep_unchecked(arrival_ms, is_misplaced):
        return ForeignSubRecords.KEEP_UNCHECKED

    nothing = Shard("orders", "shardId-1", hash_range=HashRange(0, 0))
    metrics = ShardMetrics()
    data = aggregate(("a", b"1"), ("b", b"2"))
    records = await deaggregated(
        raw(data, "1"), raw(data, "2"), shard=nothing, metrics=metrics, foreign_sub_records=keep_unchecked
    )
    assert len(records) == 4
    assert (metrics.unchecked_sub_records, metrics.foreign_sub_records) == (4, 0)


async def test_s4_without_foreign_sub_records_there_is_no_check():
    async def never(arrival_ms, is_misplaced):
        raise AssertionError("a call without need")

    almost_all = Shard("orders", "shardId-1", hash_range=HashRange(1, MAX_HASH_KEY))
    assert len(await deaggregated(raw(aggregate(("a", b"1"))), shard=almost_all, foreign_sub_records=never)) == 1


async def test_p2_a_restart_inside_an_aggregate_drops_what_was_done():
    start = StartingPosition.after(SequenceNumber("49", 1))
    data = aggregate(("a", b"0"), ("a", b"1"), ("a", b"2"))
    records = await deaggregated(raw(data, "49"), raw(data, "50"), start=start)
    assert [(r.sequence_number, r.sub_sequence_number) for r in records] == [("49", 2), ("50", 0), ("50", 1), ("50", 2)]


def test_p2_without_a_position_inside_an_aggregate_nothing_is_dropped():
    records = [raw(b"x")]
    assert records_after(records, None) is records


async def test_f1_long_work_yields_to_the_event_loop():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    big = raw(aggregate(*[("a", b"x")] * (3 * STEP)))
    records = await deaggregated(big, *[raw(aggregate(("a", b"x"), ("a", b"y")))] * STEP)
    task.cancel()
    assert len(records) == 5 * STEP
    assert turns >= 4


async def test_s4_foreign_sub_records_of_one_response_need_one_check_at_its_latest_arrival():
    checked = []

    async def drop(arrival_ms, is_misplaced):
        checked.append((arrival_ms, is_misplaced))
        return ForeignSubRecords.DROP

    half = Shard("s", "shardId-0", hash_range=HashRange(0, 2**127))
    data = aggregate(("a", b"1", "1"), ("b", b"2", str(2**128 - 5)))
    await deaggregated(*(raw(data, str(n)) for n in range(1, 9)), shard=half, foreign_sub_records=drop)

    assert checked == [(1500.0, False)]


async def test_s4_the_first_dropped_sub_records_are_logged_with_what_to_do(caplog):
    half = Shard("s", "shardId-0", hash_range=HashRange(0, 2**127))
    data = aggregate(("a", b"1", "1"), ("b", b"2", str(2**128 - 5)))
    await deaggregated(*(raw(data, str(n)) for n in range(1, 9)), shard=half)

    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "s/shardId-0" in warning
    assert "other shards" in warning
    assert "put only keys of one shard into one record" in warning
