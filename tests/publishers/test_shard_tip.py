"""A2: one small read says whether something lies behind a position."""

import itertools

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_tip import MAX_READS, TipDistance, measure_tip_distance
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

SHARD = Shard("s", "a")
AFTER = StartingPosition.after(SequenceNumber("7"))


class Port:
    """Answers what a test says; keeps what was asked and when."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def get_shard_iterator(self, shard, position):
        self.asked.append((shard.shard_id, position))
        return "first"

    async def get_records(self, shard, iterator, limit):
        self.asked.append((iterator, limit, VirtualClock().monotonic()))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def empty(behind=0, following="next"):
    return ReadResponse([], behind, following)


def look(*answers):
    port = Port(*answers)
    return run_virtual(measure_tip_distance(port, SHARD, AFTER)), port.asked


def test_a_record_behind_the_position_is_unread_since_its_arrival():
    record = UserRecord(b"x", "8", 1_700_000_000.25)
    tip, asked = look(ReadResponse([record], 90_000, "next"))

    assert tip == TipDistance(True, 1_700_000_000_250, 90_000)
    assert asked == [("a", AFTER), ("first", 1, 0.0)]


def test_an_empty_answer_at_the_tip_says_that_nothing_is():
    assert look(empty())[0] == TipDistance(False)


def test_the_end_of_a_shard_says_so():
    assert look(empty(following=None))[0] == TipDistance(False, is_end=True)


def test_empty_answers_on_the_way_are_passed_within_the_five_calls_a_second():
    record = UserRecord(b"x", "8", 1.0)
    tip, asked = look(empty(5_000), empty(4_000), ReadResponse([record], 0, "next"))

    assert tip.has_unread
    moments = [at for _, _, at in asked[1:]]
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(moments))


def test_it_gives_up_when_the_tip_is_not_reached():
    tip, asked = look(*[empty(5_000)] * MAX_READS)

    assert tip is None
    assert len(asked) == 1 + MAX_READS


def test_an_error_is_the_callers():
    with pytest.raises(TransientError):
        look(TransientError("GetRecords", "Slow", "down"))
