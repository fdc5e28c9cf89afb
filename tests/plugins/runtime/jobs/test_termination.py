"""A drain that waits says so."""

import asyncio
import signal

from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.plugins.runtime.jobs import termination
from recordpublisher.plugins.runtime.jobs.termination import stop_on_signals, tell_what_drains
from recordpublisher.testing import run_virtual


def test_a_drain_that_waits_says_for_what_and_how_to_end_it(caplog):
    async def drain_for_25_seconds():
        telling = asyncio.create_task(tell_what_drains(3, "map", lambda: Unfinished(7, "records not handled: 7")))
        await asyncio.sleep(25)
        telling.cancel()

    run_virtual(drain_for_25_seconds())

    first, second = caplog.messages
    assert first.startswith(
        "subtask 3 has been draining for 10 s: it waits for the sink 'map' (records not handled: 7)"
    )
    assert "A second signal ends it at once" in first
    assert "draining for 20 s" in second


async def test_the_second_signal_is_logged_and_ends_the_process(monkeypatch, caplog):
    done, handlers = [], {}
    monkeypatch.setattr(termination.os, "_exit", done.append)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", handlers.__setitem__)
    stop_on_signals(lambda: done.append("drain"), lambda: done.append("give up"))
    handlers[signal.SIGTERM]()
    assert (done, caplog.messages) == (["drain"], [])
    handlers[signal.SIGTERM]()

    assert done == ["drain", "give up", 1]
    assert "second signal" in caplog.text
