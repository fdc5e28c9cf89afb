"""A call that blocks the event loop is logged with its stack, from another thread."""

import asyncio
import logging
import re
import time

from recordpublisher.plugins.runtime import background_loop as loop_watch
from recordpublisher.plugins.runtime.background_loop import LoopWatch

CHECK = 0.01


def a_call_that_blocks(until):
    limit = time.monotonic() + 60
    while not until() and time.monotonic() < limit:
        time.sleep(CHECK)


async def test_a_call_that_blocks_is_shown_once_with_its_line_and_its_calls_are_for_debugging(caplog):
    caplog.set_level(logging.DEBUG, "recordpublisher.run")
    with LoopWatch(CHECK):
        a_call_that_blocks(lambda: len(caplog.messages) > 1)
        await asyncio.sleep(20 * CHECK)

    blocked, calls = caplog.records
    assert re.fullmatch(
        r"\S+test_loop_watch\.py:\d+ \(a_call_that_blocks\) blocks the event loop: for 0 s reading, heartbeats and the stop have waited. "
        r"Make it `await`, or run it in a thread",
        blocked.getMessage(),
    )
    assert (blocked.levelname, calls.levelname) == ("ERROR", "DEBUG")
    assert calls.getMessage().splitlines()[-1].strip() == "time.sleep(CHECK)"
    assert "asyncio/events.py" not in calls.getMessage()


async def test_a_loop_that_runs_is_not_mentioned(caplog, monkeypatch):
    monkeypatch.setattr(loop_watch, "BLOCKED_CHECKS", 1_000)
    with LoopWatch(CHECK):
        await asyncio.sleep(20 * CHECK)

    assert caplog.messages == []
