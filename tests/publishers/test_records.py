"""Batches and their slices, each with the exact position after it (P1, P2)."""

import gc
import itertools
import pickle
import weakref
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import (
    COLUMNS,
    PoisonedRecord,
    RecordBatch,
    RecordColumns,
    SkippedRecords,
    UserRecord,
    to_millis,
)
from recordpublisher.publishers.shards import Shard


@st.composite
def batches(draw):
    """Plain records and KPL aggregates in any mixture."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    records = []
    for number, size in enumerate(sizes):
        subs = range(size) if size else [-1]
        records += [UserRecord(b"x" * number, str(number), 1.5 + number, sub_sequence_number=sub) for sub in subs]
    return RecordBatch(
        Shard("s", "a"),
        records,
        0,
        SequenceNumber(str(len(sizes) - 1)),
        (Shard("s", "child"),),
        raw_count=len(sizes),
        raw_bytes=draw(st.integers(0, 10_000)),
        decoded=list(range(len(records))),
        event_times=list(range(len(records))),
        watermarks=list(range(len(records))),
    )


def cut(batch, cuts):
    places = sorted({0, len(batch), *(cut % (len(batch) + 1) for cut in cuts)})
    return [batch.slice(start, stop) for start, stop in itertools.pairwise(places)]


@given(batches(), st.lists(st.integers(0, 100), max_size=6), st.booleans())
def test_slices_cover_a_batch_exactly(batch, cuts, looks_first):
    _ = batch.arrival_millis if looks_first else None
    parts = cut(batch, cuts)

    for column in ("records", "values", "event_times", "watermarks", "arrival_millis", "data", "sub_sequence_numbers"):
        assert [each for part in parts for each in getattr(part, column)] == list(getattr(batch, column))
    assert sum(part.raw_bytes for part in parts) == batch.raw_bytes
    assert sum(part.raw_count for part in parts) == batch.raw_count


@given(batches(), st.lists(st.integers(0, 100), max_size=6))
def test_a_batch_of_columns_is_the_same_as_one_of_records(batch, cuts):
    columns = RecordColumns(**{name: getattr(batch.columns, name) for name in COLUMNS})
    made = replace(batch, records=columns)

    assert cut(made, cuts) == cut(batch, cuts)
    assert list(made) == list(batch)
    assert [made.records[index] for index in range(-len(batch), len(batch))] == [*batch.records, *batch.records]


def test_the_records_of_columns_are_made_when_they_are_asked_for():
    columns = RecordColumns(**{name: getattr(a_plain_batch().columns, name) for name in COLUMNS})
    batch = replace(a_plain_batch(), records=columns)

    assert batch.records[1].data == batch.data[1] == b"1"
    assert "records" not in vars(columns)
    assert [record.data for record in batch] == batch.data
    assert "records" in vars(columns)


@given(batches())
def test_other_payloads_leave_the_records_as_they_were(batch):
    payloads = [bytes(number) for number in range(len(batch))]
    made = batch.with_data(payloads)

    assert made.records == [
        msgspec.structs.replace(record, data=data) for record, data in zip(batch.records, payloads, strict=True)
    ]
    assert made.raw_bytes == sum(map(len, payloads))


@given(batches(), st.lists(st.integers(0, 100), max_size=6))
def test_a_restart_after_a_slice_reads_exactly_the_rest(batch, cuts):  # P2
    done = 0
    for part in cut(batch, cuts):
        done += len(part)
        start = StartingPosition.after(part.read_position)
        rest = [record for record in batch.records if _is_read_from(record, start)]
        assert rest == list(batch.records[done:])


@given(batches(), st.lists(st.integers(0, 100), max_size=6))
def test_only_the_last_slice_has_the_child_shards(batch, cuts):  # S3
    *others, last = cut(batch, cuts)

    assert last.child_shards == batch.child_shards
    assert last.read_position == batch.read_position
    assert all(part.child_shards == () for part in others)


def test_a_slice_before_the_last_is_behind_the_tip_by_its_last_record():
    batch = replace(a_plain_batch(), millis_behind_latest=500)

    assert [batch.slice(start, 1 + start).millis_behind_latest for start in range(3)] == [2500, 1500, 500]
    assert batch.slice(0, 0).millis_behind_latest == 2500
    assert a_plain_batch().slice(0, 1).millis_behind_latest is None


def test_a_slice_before_the_last_of_a_batch_at_the_tip_does_not_promise_the_tip():
    batch = RecordBatch(Shard("s", "a"), [UserRecord(b"", str(n), 1.0) for n in range(2)], 0)

    assert [batch.slice(start, 1 + start).millis_behind_latest for start in range(2)] == [None, 0]


def test_a_batch_with_new_columns_keeps_its_cached_columns():
    batch = a_plain_batch()

    stamped = batch.with_columns(event_times=batch.arrival_millis, watermarks=[1, 2, 3])

    assert stamped.arrival_millis is batch.arrival_millis
    assert stamped.watermark == 3


def test_new_columns_do_not_change_the_original_batch():
    batch = a_plain_batch()

    stamped = batch.with_columns(values=["a", "b", "c"]).with_columns(event_times=[7, 8, 9])

    assert (stamped.values, stamped.event_times) == (["a", "b", "c"], [7, 8, 9])
    assert (batch.decoded, batch.event_times) == (None, None)


def test_a_record_is_an_immutable_value():
    first, second, _ = a_plain_batch()

    assert first == pickle.loads(pickle.dumps(first)) != second
    assert hash(first) == hash(msgspec.structs.replace(second, **msgspec.structs.asdict(first)))
    assert repr(first).startswith("Record(stream='s', shard_id='a', sequence_number='0', sub_sequence_number=-1,")
    with pytest.raises(AttributeError):
        first.value = "other"


class Document:
    """A deserialized value that its user gives a reference to the record."""


def test_a_value_that_refers_to_its_record_is_freed_with_it():
    (record,) = a_plain_batch().with_columns(values=[Document(), 1, 2]).slice(0, 1)
    record.value.source = record
    freed = weakref.ref(record.value)

    del record
    gc.collect()
    assert freed() is None


def a_plain_batch():
    return RecordBatch(Shard("s", "a"), [UserRecord(b"%d" % n, str(n), 1.5 + n, f"key-{n}") for n in range(3)])


def _is_read_from(record, start):
    at, filtered = int(start.sequence_number), start.skip_through
    number = int(record.sequence_number)
    if filtered is None:
        return number > at
    return number > at or (number == at and record.sub_sequence_number > filtered.sub_sequence)


@given(batches(), st.lists(st.integers(0, 100), max_size=6), st.lists(st.integers(0, 100), max_size=5))
def test_each_poisoned_record_is_in_the_slice_of_its_index(batch, cuts, places):  # S7
    places = sorted(place % (len(batch) + 1) for place in places)
    poisoned = tuple(
        PoisonedRecord(place, UserRecord(b"", f"poison {number}"), "why") for number, place in enumerate(places)
    )
    skipped = tuple(SkippedRecords(place, number, f"skipped {number}") for number, place in enumerate(places))
    whole = replace(batch, poisoned=poisoned, skipped=skipped)
    parts = cut(whole, cuts) or [whole]

    assert [each.record for part in parts for each in part.poisoned] == [each.record for each in poisoned]
    assert [each.count for part in parts for each in part.skipped] == [each.count for each in skipped]
    for part in parts[:-1]:
        assert all(0 <= each.index < len(part) for each in (*part.poisoned, *part.skipped)), (
            "a position must not pass a record that was not written"
        )


@pytest.mark.parametrize(("millis", "shown"), [(1_795_734_125_222_000, "9999-12-31"), (-(10**18), "0001-01-01")])
def test_an_impossible_time_of_arrival_can_be_printed(millis, shown):
    batch = RecordBatch(Shard("s", "a"), [UserRecord(b"", "1", millis / 1000)])
    assert [f"{record.approximate_arrival_timestamp:%Y-%m-%d}".zfill(10) for record in batch] == [shown]


def test_a_slice_before_a_dead_letter_of_its_aggregate_ends_inside_the_aggregate():  # P2
    parts = [UserRecord(b"x", "7", 1.5, sub_sequence_number=sub) for sub in range(2)]
    records = [parts[0], UserRecord(b"x", "8", 2.5)]
    batch = RecordBatch(Shard("s", "a"), records, 0, SequenceNumber("8"), poisoned=(PoisonedRecord(1, parts[1], "no"),))

    assert batch.slice(0, 1).read_position == SequenceNumber("7", 0)
    assert batch.slice(1, 2).poisoned == (PoisonedRecord(0, parts[1], "no"),)


def test_a_slice_before_a_skipped_record_of_its_aggregate_ends_inside_the_aggregate():  # P2
    parts = [UserRecord(b"x", "7", 1.5, sub_sequence_number=sub) for sub in range(2)]
    records, skipped = [parts[0], UserRecord(b"x", "8", 2.5)], (SkippedRecords(1, 4, "7"),)
    batch = RecordBatch(Shard("s", "a"), records, 0, SequenceNumber("8"), skipped=skipped)

    assert batch.slice(0, 1).read_position == SequenceNumber("7", 0)
    assert (batch.slice(0, 1).skipped, batch.slice(1, 2).skipped) == ((), (SkippedRecords(0, 4, "7"),))


def test_a_batch_shows_its_first_values():
    batch = a_plain_batch().with_columns(values=["a", "b", "x" * 1000])

    assert repr(batch).startswith(f"<RecordBatch of {batch.shard.key}, 3 records: 'a', 'b', 'xxxx")
    assert len(repr(batch)) < 200


@given(st.integers(0, 4_102_444_800_000))
def test_seconds_of_the_service_are_converted_to_exact_milliseconds(millis):
    assert to_millis(millis / 1000) == millis
