from recordpublisher.plugins.sinks.kinesis.outstanding_records import OVERHEAD_BYTES, OutstandingRecords
from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.plugins.sinks.kinesis.statistics import MeanSize


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
