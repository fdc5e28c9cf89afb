"""A run that ends at a record of a shard reads none behind it."""

from recordpublisher.consumer.end_position import EndPosition, RunEndCut
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from fakes.batches import batch


def batch_of(*arrivals_ms: int) -> RecordBatch:
    records = [UserRecord(b"", str(place), arrival / 1000) for place, arrival in enumerate(arrivals_ms)]
    return RecordBatch(Shard("s", "a"), records)


class BeforePayload:
    def __init__(self, payload):
        self.payload = payload

    def records_before(self, batch):
        return batch.data.index(self.payload) if self.payload in batch.data else len(batch)


def test_without_an_end_batches_stay_as_they_are():
    whole = batch(b"a", b"b")
    assert RunEndCut(None).before_end(whole) is whole


def test_once_a_record_was_behind_the_end_so_are_all_later_ones():
    cut = RunEndCut(BeforePayload(b"end"))
    given = [batch(b"a", b"b"), batch(), batch(b"c", b"end", b"d"), batch(b"e"), batch()]
    assert [list(cut.before_end(each).data) for each in given] == [[b"a", b"b"], [], [b"c"], [], []]
    assert cut.first_past == given[2].sequence_numbers[1]


def test_a_batch_without_records_is_not_behind_the_end():
    cut = RunEndCut(BeforePayload(b"end"))
    assert cut.before_end(batch()) == batch()
    assert cut.first_past is None


def test_an_end_by_time_lies_before_the_first_late_record_although_earlier_ones_follow():
    end = EndPosition(200)
    assert end.records_before(batch_of(100, 150, 200, 120)) == 2
    assert end.records_before(batch_of(100, 199)) == 2
    assert end.records_before(batch_of()) == 0


def test_an_end_by_sequence_number_lies_before_that_record_or_the_next_one():
    assert EndPosition(0, 2).records_before(batch_of(1, 1, 1, 1)) == 2
    assert EndPosition(0, 4).records_before(batch_of(1, 1, 1, 1)) == 4
