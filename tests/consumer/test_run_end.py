"""A run that ends at a record of a shard reads none behind it."""

from recordpublisher.consumer.run_end import RunEndCut

from fakes.batches import batch


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
