"""The time-outs of handlers: one timer for all."""

import asyncio

from recordpublisher.plugins.sinks.map.deadlines import Deadlines
from recordpublisher.testing import run_virtual


async def limited(deadlines, seconds):
    """A handler of this length. Returns what became of it, and when."""
    task = asyncio.current_task()
    deadlines.start(task)
    try:
        await asyncio.sleep(seconds)
        result = "finished"
    except asyncio.CancelledError:
        result = "cancelled"
    was_expired = deadlines.finish(task)
    return result, was_expired, task.cancelling(), asyncio.get_running_loop().time()


def test_the_one_that_takes_too_long_is_cancelled_and_its_worker_is_not():
    async def job():
        deadlines = Deadlines(2.0)
        return await asyncio.gather(limited(deadlines, 1), limited(deadlines, 3), limited(deadlines, 1.5))

    assert run_virtual(job()) == [("finished", False, 0, 1.0), ("cancelled", True, 0, 2.0), ("finished", False, 0, 1.5)]


def test_time_in_which_the_process_was_stopped_does_not_count():
    async def job():
        deadlines = Deadlines(2.0)
        handler = asyncio.ensure_future(limited(deadlines, 601.9))
        await asyncio.sleep(1.5)
        asyncio.get_running_loop().suspend(600)
        return await handler

    result, was_expired, _, _ = run_virtual(job())
    assert (result, was_expired) == ("finished", False)
