"""S6: when a checkpoint is taken; it is never cut off."""

import asyncio

from recordpublisher.fetcher.checkpoints.checkpoint_schedule import CheckpointScheduler
from recordpublisher.testing.virtual_time import run_virtual


def keep(interval_ms, *events, cost=0.0, seconds=10.0):
    """The moments at which checkpoints began and ended; `events` are (moment, name of a method)."""
    taken = []

    async def job():
        loop = asyncio.get_running_loop()

        async def take():
            began = loop.time()
            await asyncio.sleep(cost)
            taken.append((began, loop.time()))

        keeper = CheckpointScheduler(interval_ms)
        for moment, name in [*events, (seconds, "stop")]:
            loop.call_later(moment, getattr(keeper, name))
        await keeper.run(take)
        return loop.time()

    return run_virtual(job()), taken


def test_one_in_each_interval():
    _, taken = keep(3_000)

    assert [began for began, _ in taken] == [3, 6, 9]


def test_a_requested_checkpoint_is_taken_at_once():  # S2
    _, taken = keep(-1, (2.0, "request"), (5.0, "request"))

    assert [began for began, _ in taken] == [2, 5]


def test_stopping_waits_for_the_one_that_is_going_on():
    ended, taken = keep(-1, (2.0, "request"), cost=30.0)

    assert ended == 32
    assert taken == [(2, 32)]


def test_stopping_takes_no_other():
    assert keep(-1) == (10, [])


def test_simultaneous_requests_share_one_checkpoint():  # a thousand shards may end in the same second
    _, taken = keep(-1, *((2.0 + number / 100, "request") for number in range(15)))

    assert [round(began, 3) for began, _ in taken] == [2.0, 2.1, 2.2]


def test_stopping_does_not_wait_for_the_next_one():
    ended, taken = keep(-1, (2.0, "request"), (2.01, "request"), seconds=2.05)

    assert ended == 2.05
    assert len(taken) == 1
