"""A stream that was deleted and created again has shards with the ids of the old ones: it is never taken for read (S8)."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.checkpoints.shard_starts import list_restored
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState, snapshot_to_json
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.lag.job_state import JobState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.shard_entries import START

OLD, SECOND, MERGED = (f"shardId-{number:012}" for number in range(3))
BEFORE = [Shard("s", shard_id, starting_sequence_number="1") for shard_id in (OLD, SECOND)]


def read_to_its_end(position="5"):
    return ShardState(START, None if position is None else SequenceNumber(position), ended=True)


def of(state, **more):
    return RestoredState({f"s/{OLD}": state, f"s/{SECOND}": state, **more})


def listed(restored, *listings):
    """The number of listings, and the last one."""
    left, count = [*listings], [0]

    async def list_all():
        count[0] += 1
        return left.pop(0) if len(left) > 1 else left[0]

    async def exists(shard):
        return shard in left[0]

    found = run_virtual(list_restored(list_all, ("s",), restored, MissingShards(exists)))
    return count[0], found


@pytest.mark.parametrize("is_closed", [False, True])
def test_shards_that_begin_after_the_end_that_was_read_are_those_of_a_later_stream(is_closed):
    later = [replace(shard, closed=is_closed, starting_sequence_number="9") for shard in BEFORE]
    merged = {f"s/{MERGED}": ShardState(START, SequenceNumber("7"))}

    for more in ({}, merged):
        with pytest.raises(StateError, match=f"was deleted and created again.*s/{OLD}, s/{SECOND}"):
            listed(of(read_to_its_end(), **more), later)


@pytest.mark.parametrize("position", ["5", None])
def test_a_shard_that_stays_open_after_its_end_was_read_is_that_of_a_later_stream(position):
    with pytest.raises(StateError, match=f"was deleted and created again.*s/{OLD}, s/{SECOND}"):
        listed(of(read_to_its_end(position)), BEFORE)


def test_an_old_listing_that_shows_a_shard_as_open_is_repeated():  # S5
    closed = [replace(shard, closed=True) for shard in BEFORE]

    assert listed(of(read_to_its_end()), BEFORE, BEFORE, closed) == (3, closed)


def test_a_source_that_lists_no_beginnings_need_not_say_that_a_shard_is_closed():
    shards = [replace(shard, starting_sequence_number=None) for shard in BEFORE]

    assert listed(of(read_to_its_end()), shards) == (1, shards)


def test_lag_does_not_take_a_later_stream_for_read():
    stored = snapshot_to_json(of(read_to_its_end()).shards, None, 1)
    later = [replace(shard, starting_sequence_number="9") for shard in BEFORE]

    with pytest.raises(StateError, match="was deleted and created again"):
        JobState.of([stored], later, START)
    # A shard may be closed, and its end stored, after it was listed.
    assert JobState.of([stored], BEFORE, START).states[f"s/{OLD}"].ended
