"""A call that blocks the event loop is logged with its stack, from another thread."""

import asyncio
import time

from recordpublisher.plugins.runtime import background_loop as loop_watch
from recordpublisher.plugins.runtime.background_loop import LoopWatch

CHECK = 0.01


def a_call_that_blocks(until):
    limit = time.monotonic() + 60
    while not until() and time.monotonic() < limit:
        time.sleep(CHECK)


async def test_a_call_that_blocks_is_shown_once_with_its_stack(caplog):
    with LoopWatch(CHECK):
        a_call_that_blocks(lambda: bool(caplog.messages))
        await asyncio.sleep(20 * CHECK)

    (blocked,) = caplog.messages
    assert blocked.startswith(
        "a call has blocked the event loop for 0 s, and reading, heartbeats and the stop wait for it: "
    )
    assert "in a_call_that_blocks" in blocked
    assert blocked.splitlines()[-1].strip() == "time.sleep(CHECK)"
    assert "asyncio/events.py" not in blocked


async def test_a_loop_that_runs_is_not_mentioned(caplog, monkeypatch):
    monkeypatch.setattr(loop_watch, "BLOCKED_CHECKS", 1_000)
    with LoopWatch(CHECK):
        await asyncio.sleep(20 * CHECK)

    assert caplog.messages == []
