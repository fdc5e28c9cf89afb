"""ShardState: how far a shard was emitted, and as JSON (S5)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition

from fakes.shard_entries import START

DIGITS = st.integers(0, 10**56).map(str)
MILLIS = st.none() | st.integers(0, 2**53)
STARTS = st.sampled_from([START, StartingPosition.latest()]) | st.builds(
    StartingPosition.at_timestamp, st.integers(0, 2**53)
)
STATES = st.builds(
    ShardState,
    start=STARTS,
    position=st.none() | st.builds(SequenceNumber, DIGITS, st.integers(-1, 500)),
    continuation=st.none() | DIGITS,
    watermark=st.none() | st.integers(-(2**53), 2**53),
    ended=st.booleans(),
    arrival_ms=MILLIS,
    tip_ms=MILLIS,
    parents=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    waiting=st.booleans(),
    seen_ms=MILLIS,
)


@given(STATES)
def test_json_and_back_is_the_same(state):
    assert ShardState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_a_fresh_shard_begins_at_its_start():
    assert ShardState(START).starting_position(True) == START


def test_polling_resumes_after_the_last_record_and_never_by_a_continuation():  # F6
    state = ShardState(START, SequenceNumber("5"), continuation="9")

    assert state.starting_position(False) == StartingPosition.after(SequenceNumber("5"))
    assert state.starting_position(True) == StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, "9")


def test_inside_an_aggregate_the_rest_of_the_record_comes_first():  # P2
    state = ShardState(START, SequenceNumber("5", 2), continuation="9")

    assert state.starting_position(True).skip_through == SequenceNumber("5", 2)


@pytest.mark.parametrize(
    "entries",
    [{}, {"start": "NOWHERE"}, {"start": 5}, {"start": "LATEST", "position": 1, "subSequenceNumber": "x"}, None],
)
def test_an_invalid_state_is_a_state_error(entries):
    with pytest.raises(StateError, match="cannot be read"):
        ShardState.from_json(entries)
