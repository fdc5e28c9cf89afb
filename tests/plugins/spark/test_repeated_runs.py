"""Runs with Trigger.AvailableNow are repeated on Spark 4.0 and 4.1, until each shard was read far enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.source.offset import BatchOffset, ShardOffset
from recordpublisher.plugins.spark.stream_reader import has_read_all
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

BEGAN = 1000
UNREAD = ShardState(StartingPosition.trim_horizon())
AT_TIP, BEFORE = replace(UNREAD, tip_ms=BEGAN), replace(UNREAD, tip_ms=BEGAN - 1, arrival_ms=BEGAN - 1)


def progress(*states: ShardState) -> dict[str, object]:
    """As PySpark 4.0 and 4.1 show offsets: JSON that was parsed, as text. Two sources are not of this library."""
    entries = {f"s/{number}": ShardOffset(Shard("s", str(number)), state) for number, state in enumerate(states)}
    offset = BatchOffset("query", "plan", 2, 0, entries)
    return {"sources": [{"endOffset": str(offset.to_json())}, {"endOffset": "7"}, {"endOffset": None}]}


@pytest.mark.parametrize(
    "states", [[AT_TIP], [replace(UNREAD, arrival_ms=BEGAN)], [AT_TIP, replace(BEFORE, ended=True)]]
)
def test_a_tip_a_record_that_arrived_since_and_an_end_are_far_enough(states):
    assert has_read_all(progress(*states), BEGAN)


@pytest.mark.parametrize("states", [[UNREAD], [BEFORE], [AT_TIP, UNREAD], []])
def test_a_shard_that_was_read_before_or_not_at_all_is_not(states):
    assert not has_read_all(progress(*states), BEGAN)


def test_a_run_without_a_batch_says_nothing():
    assert not has_read_all(None, BEGAN)
    assert not has_read_all({"sources": []}, BEGAN)
