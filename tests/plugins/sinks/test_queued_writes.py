"""Which state of a job may be stored: the newest of which everything is written."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.plugins.sinks.queued_writes import MOST_WAITING, WrittenStates


def state(position, *shards):
    return {"generation": 1, "shards": dict.fromkeys(shards or ("orders/a",), position)}


def test_before_anything_is_written_the_state_has_no_shards():
    states = WrittenStates(lambda epoch: False)
    states.add(0, state(5))
    assert states.newest() == {"generation": 1, "shards": {}}


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
def test_the_newest_is_written_and_never_older_than_before(steps, first_complete):
    complete, found = min(first_complete, len(steps)), [-1]
    states = WrittenStates(lambda epoch: epoch < complete)
    for epoch, step in enumerate(steps):
        states.add(epoch, state(epoch))
        complete = min(epoch + 1, complete + step)
        found.append(states.newest()["shards"].get("orders/a", -1))
        assert found[-2] <= found[-1] < complete
    complete = len(steps)
    if steps:
        assert states.newest() == state(len(steps) - 1)


def test_when_many_wait_a_further_one_takes_the_place_of_the_last():
    complete = 0
    states = WrittenStates(lambda epoch: epoch < complete)
    for epoch in range(MOST_WAITING + 5):
        states.add(epoch, state(epoch))
    complete = MOST_WAITING
    assert states.newest() == state(MOST_WAITING - 2)
    complete += 5
    assert states.newest() == state(MOST_WAITING + 4)


def test_revoked_shards_are_in_no_state():
    complete = 1
    states = WrittenStates(lambda epoch: epoch < complete)
    states.add(0, state(0, "orders/a", "orders/b"))
    states.newest()
    states.add(1, state(1, "orders/a", "orders/b"))
    states.revoke(["orders/a"])
    assert states.newest() == state(0, "orders/b")
    complete = 2
    assert states.newest() == state(1, "orders/b")
