"""A drain that waits says so."""

import asyncio
import signal

import pytest

from recordpublisher.plugins.runtime.jobs import termination
from recordpublisher.plugins.runtime.jobs.termination import stop_on_signals, tell_what_drains
from recordpublisher.testing import run_virtual


def test_a_drain_that_waits_says_for_what_and_how_to_end_it(caplog):
    async def drain_for_25_seconds():
        telling = asyncio.create_task(tell_what_drains(3, "map", lambda: "7 records are not handled"))
        await asyncio.sleep(25)
        telling.cancel()

    run_virtual(drain_for_25_seconds())

    first, second = caplog.messages
    assert first.startswith(
        "subtask 3 has been draining for 10 s: it waits for the sink 'map' (7 records are not handled)"
    )
    assert "A second signal ends it at once" in first
    assert "draining for 20 s" in second


@pytest.mark.parametrize(("second_at", "calls"), [(0.05, ["drain"]), (1.5, ["drain", "give up", 1])])
async def test_a_signal_that_comes_twice_at_once_counts_once(monkeypatch, caplog, second_at, calls):
    """`timeout` sends SIGTERM to the process and to its group."""
    done, times, handlers = [], [0.0, second_at], {}
    monkeypatch.setattr(termination.os, "_exit", done.append)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", handlers.__setitem__)
    stop_on_signals(lambda: done.append("drain"), lambda: done.append("give up"), now=lambda: times.pop(0))
    handlers[signal.SIGTERM]()
    handlers[signal.SIGTERM]()

    assert done == calls
    assert any("second signal" in line for line in caplog.messages) is (len(calls) > 1)
