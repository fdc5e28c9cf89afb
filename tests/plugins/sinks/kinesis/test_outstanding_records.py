import pytest

from recordpublisher.plugins.sinks.kinesis.outstanding_records import OVERHEAD_BYTES, MeanSize, OutstandingRecords
from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord


def a_record(size=10):
    return PendingRecord(bytes(size - 1), "k", None, size)


def test_the_number_of_records_is_bounded():
    outstanding = OutstandingRecords(2, None)
    first = a_record()
    outstanding.add(first)
    assert outstanding.has_capacity(10)
    outstanding.add(a_record())
    assert not outstanding.has_capacity(10)
    outstanding.complete([first])
    assert outstanding.has_capacity(10)


def test_bytes_are_counted_as_held_in_memory():
    outstanding = OutstandingRecords(None, 1_000)
    outstanding.add(a_record(500))
    assert outstanding.bytes == 500 + OVERHEAD_BYTES
    assert outstanding.has_capacity(1_000 - 500 - 2 * OVERHEAD_BYTES)
    assert not outstanding.has_capacity(1_001 - 500 - 2 * OVERHEAD_BYTES)


def test_an_epoch_is_complete_when_all_its_records_are():
    outstanding = OutstandingRecords(None, None)
    before, after = a_record(), a_record()
    outstanding.add(before)
    epoch = outstanding.end_epoch()
    outstanding.add(after)
    assert not outstanding.is_complete(epoch)
    outstanding.complete([after])
    assert not outstanding.is_complete(epoch)
    outstanding.complete([before])
    assert outstanding.is_complete(epoch)


def test_epochs_do_not_pile_up():
    outstanding = OutstandingRecords(None, None)
    for _ in range(1_000):
        outstanding.complete([added_to(outstanding)])
        outstanding.end_epoch()
    assert outstanding._ended_epochs == {}


def added_to(outstanding):
    record = a_record()
    outstanding.add(record)
    return record


def test_the_mean_follows_a_change_of_size():
    mean = MeanSize()
    assert mean.value == 0
    mean.add(10_000, 1_000_000)
    assert mean.value == 100
    for _ in range(50):
        mean.add(1_000, 1_000_000)
    assert mean.value > 900


@pytest.mark.parametrize("limits", [(None, 1_000), (3, None), (3, 1_000), (1, 100_000), (None, 100)])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_as_many_fit_at_once_as_one_by_one(limits, before):
    outstanding = OutstandingRecords(*limits)
    outstanding.add_all([a_record() for _ in range(before)])
    records = [a_record(10 * number + 1) for number in range(1, 6)]

    fitting = outstanding.fitting(records)

    for record in records[:fitting]:
        assert outstanding.has_capacity(record.size)
        outstanding.add(record)
    assert fitting == len(records) or not outstanding.has_capacity(records[fitting].size)


def test_records_that_are_added_at_once_count_as_those_that_are_added_one_by_one():
    together, apart = OutstandingRecords(None, None), OutstandingRecords(None, None)
    for outstanding in (together, apart):
        outstanding.end_epoch()
    records = [a_record(10), a_record(20)]

    together.add_all(records)

    assert [record.epoch for record in records] == [1, 1]
    for record in records:
        apart.add(record)
    assert (together.records, together.bytes) == (apart.records, apart.bytes)
