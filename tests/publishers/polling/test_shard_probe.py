"""A2: one small read shows whether there are records after a position."""

import itertools

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.polling.publisher import MAX_READS, TipDistance, measure_tip_distance
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

SHARD = Shard("s", "a")
AFTER = StartingPosition.after(SequenceNumber("7"))


class Port:
    """Returns scripted responses, and keeps the requests with their times."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.requests = []

    async def get_shard_iterator(self, shard, position):
        self.requests.append((shard.shard_id, position))
        return "first"

    async def get_records(self, shard, iterator, limit):
        self.requests.append((iterator, limit, VirtualClock().monotonic()))
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def empty(behind=0, following="next"):
    return ReadResponse([], behind, following)


def measured(*responses):
    port = Port(*responses)
    return run_virtual(measure_tip_distance(port, SHARD, AFTER)), port.requests


def test_a_record_after_the_position_is_unread_since_its_arrival():
    record = UserRecord(b"x", "8", 1_700_000_000.25)
    tip, requests = measured(ReadResponse([record], 90_000, "next"))

    assert tip == TipDistance(True, 1_700_000_000_250, 90_000)
    assert requests == [("a", AFTER), ("first", 1, 0.0)]


def test_an_empty_response_at_the_tip_means_that_nothing_is_unread():
    assert measured(empty())[0] == TipDistance(False)


def test_nothing_is_unread_at_the_end_of_a_shard():
    assert measured(empty(following=None))[0] == TipDistance(False)


def test_empty_responses_before_a_record_are_read_within_five_calls_a_second():
    record = UserRecord(b"x", "8", 1.0)
    tip, requests = measured(empty(5_000), empty(4_000), ReadResponse([record], 0, "next"))

    assert tip.has_unread
    moments = [at for _, _, at in requests[1:]]
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(moments))


def test_none_is_returned_when_the_tip_is_not_reached():
    tip, requests = measured(*[empty(5_000)] * MAX_READS)

    assert tip is None
    assert len(requests) == 1 + MAX_READS


def test_an_error_is_raised_to_the_caller():
    with pytest.raises(TransientError):
        measured(TransientError("GetRecords", "Slow", "down"))
