"""Pacing: when SubscribeToShard may be called again (F2, F9)."""

import asyncio

from recordpublisher.publishers.fanout.resubscribe_policy import Pacing
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


def waits(*steps):
    """Seconds to wait after each step; a number lets time pass."""

    async def main():
        pacing, seen = Pacing(VirtualClock()), []
        for step in steps:
            if isinstance(step, int | float):
                await asyncio.sleep(step)
            else:
                step(pacing)
            seen.append(pacing.seconds_to_wait)
        return seen

    return run_virtual(main())


def test_the_first_call_is_made_at_once():
    assert waits(0) == [0]


def test_calls_are_a_second_apart():
    assert waits(Pacing.on_call, 0.5, 1) == [1, 0.5, 0]


def test_the_next_call_comes_five_seconds_after_a_success():
    assert waits(Pacing.on_call, 0.5, Pacing.on_subscribed, 2) == [1, 0.5, 5, 3]


def test_a_shorter_wait_does_not_replace_a_longer_one():
    assert waits(lambda p: p.wait_at_least(9), Pacing.on_subscribed, Pacing.on_call) == [9, 9, 9]
