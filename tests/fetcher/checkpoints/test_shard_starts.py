"""Where shards start of which a job has no position (P3)."""

import asyncio

import pytest

from recordpublisher.fetcher.checkpoints.shard_starts import Starts, initial_states
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard

from fakes.shard_entries import shard

OLDEST, LATEST = StartingPosition.trim_horizon(), StartingPosition.latest()
AT_7 = ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "7"))
AFTER_7 = ShardState(OLDEST, position=SequenceNumber("7"))
PINNED = StartingPosition.at_timestamp(1_000)


def test_a_named_shard_starts_where_it_is_told_to_and_any_other_at_the_default():
    starts = Starts(LATEST, {"a": AFTER_7})
    assert (starts.of(shard("a")), starts.of(shard("b"))) == (AFTER_7, ShardState(LATEST))


@pytest.mark.parametrize("named", [AT_7, AFTER_7])
@pytest.mark.parametrize(("first", "is_beginning"), [("6", False), ("7", True), ("8", True)])
def test_a_start_at_the_number_of_the_shards_beginning_or_before_it_is_trim_horizon(named, first, is_beginning):
    found = Starts(LATEST, {"a": named}).of(Shard("s", "a", starting_sequence_number=first))
    assert found == (ShardState(OLDEST) if is_beginning else named)


def test_p3_latest_is_pinned_once_for_the_default_and_each_named_shard():
    calls = []

    async def now_ms():
        calls.append("time")
        return 1_000

    pinned = asyncio.run(Starts(LATEST, {"a": ShardState(LATEST), "b": AFTER_7}).pinned(now_ms))
    assert pinned == Starts(PINNED, {"a": ShardState(PINNED), "b": AFTER_7})
    assert asyncio.run(pinned.pinned(now_ms)) == pinned
    assert calls == ["time"]


def test_a_named_shard_alone_needs_the_time():
    assert not Starts(OLDEST, {"a": ShardState(LATEST)}).is_pinned


def test_ancestors_of_a_named_shard_are_finished_and_its_descendants_start_at_trim_horizon():
    listed = [shard("p"), shard("a", "p"), shard("c", "a"), shard("x")]
    states = initial_states(listed, RestoredState(), Starts(PINNED, {"a": AT_7}))
    assert states["s/p"].ended
    assert [states[f"s/{each}"] for each in "acx"] == [AT_7, ShardState(OLDEST), ShardState(PINNED)]


def test_a_shard_is_named_for_streams_that_the_job_has_not_read():
    known = ShardState(OLDEST, SequenceNumber("5"))
    states = initial_states(
        [shard("a"), shard("b")], RestoredState({"s/a": known}), Starts(PINNED, {"a": AT_7, "b": AT_7})
    )
    assert states == {"s/a": known, "s/b": ShardState(OLDEST)}
