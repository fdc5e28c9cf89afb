"""What a read saw of a shard, and its JSON."""

from __future__ import annotations

import json

import pytest

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.publishers.shards import HashRange, Shard

CHILD = Shard("s", "child", ("a", "b"), HashRange(5, 2**128 - 1), stream_arn="arn:aws:kinesis:eu-west-1:1:stream/s")


@pytest.mark.parametrize(
    "seen",
    [
        ShardObservation(),
        ShardObservation(True, (1, 2), True, -5, 7, 0, (CHILD,), "GetRecords failed", 2, 3, 4),
        ShardObservation(next_watermark=0, behind_ms=0),
    ],
)
def test_it_survives_its_json(seen):
    assert ShardObservation.from_json(json.loads(json.dumps(seen.to_json()))) == seen


def test_what_was_not_seen_takes_no_room():
    assert ShardObservation().to_json() == {}


def test_records_or_a_distance_to_the_tip_are_a_response():
    assert [ShardObservation(behind_ms=behind).had_response(0) for behind in (None, 0, 5)] == [False, True, True]
    assert ShardObservation().had_response(1)
