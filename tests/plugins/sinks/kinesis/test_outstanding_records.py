from recordpublisher.plugins.sinks.kinesis.outstanding_records import OVERHEAD_BYTES, OutstandingRecords
from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.plugins.sinks.kinesis.statistics import MeanSize


def a_record(size=10):
    return PendingRecord(bytes(size - 1), "k", None, size)


def test_records_are_bounded():
    queue = OutstandingRecords(2, None)
    first = a_record()
    queue.add(first)
    assert queue.has_room(10)
    queue.add(a_record())
    assert not queue.has_room(10)
    queue.settle([first])
    assert queue.has_room(10)


def test_bytes_are_counted_as_held_in_memory():
    queue = OutstandingRecords(None, 1_000)
    queue.add(a_record(500))
    assert queue.bytes == 500 + OVERHEAD_BYTES
    assert queue.has_room(1_000 - 500 - 2 * OVERHEAD_BYTES)
    assert not queue.has_room(1_001 - 500 - 2 * OVERHEAD_BYTES)


def test_an_epoch_is_settled_when_what_was_added_in_it_is():
    queue = OutstandingRecords(None, None)
    before, after = a_record(), a_record()
    queue.add(before)
    epoch = queue.next_epoch()
    queue.add(after)
    assert not queue.is_settled(epoch)
    queue.settle([after])
    assert not queue.is_settled(epoch)
    queue.settle([before])
    assert queue.is_settled(epoch)


def test_epochs_do_not_pile_up():
    queue = OutstandingRecords(None, None)
    for _ in range(1_000):
        queue.settle([queue_added(queue)])
        queue.next_epoch()
    assert queue._older == {}


def queue_added(queue):
    record = a_record()
    queue.add(record)
    return record


def test_the_mean_follows_a_change_of_size():
    mean = MeanSize()
    assert mean.value == 0
    mean.add(10_000, 1_000_000)
    assert mean.value == 100
    for _ in range(50):
        mean.add(1_000, 1_000_000)
    assert mean.value > 900
