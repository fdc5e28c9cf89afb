"""Signals of a job's process: the first one drains, the second one ends."""

import asyncio
import signal

import pytest

from recordpublisher.plugins.runtime import stop_signals
from recordpublisher.plugins.runtime import stop_signals as termination
from recordpublisher.plugins.runtime.stop_signals import stop_on_signals


@pytest.fixture
def done(monkeypatch):
    """What was called; the handlers of before are set again."""
    called = []
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.setattr(termination.os, "_exit", called.append)
    yield called
    for number, handler in before:
        signal.signal(number, handler)


async def test_the_second_signal_is_logged_and_ends_the_process_also_while_the_loop_is_blocked(
    done, monkeypatch, caplog
):
    monkeypatch.setattr(stop_signals, "REPEATED_SECONDS", 0.0)
    stop_on_signals(lambda: done.append("drain"), lambda: done.append("give up"))
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0)
    assert (done, caplog.messages) == (["drain"], [])
    signal.raise_signal(signal.SIGTERM)

    assert done == ["drain", "give up", 1]
    assert "second signal" in caplog.text


async def test_a_signal_that_a_supervisor_repeats_at_once_is_the_first_one(done):
    stop_on_signals(lambda: done.append("drain"))
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0)

    assert done == ["drain"]


def test_a_loop_that_is_closed_leaves_no_handler_behind():
    async def job():
        stop_on_signals(lambda: None)

    asyncio.run(job())

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_worker_that_a_real_time_signal_killed_is_named_by_its_number():
    number = signal.SIGRTMIN + 3

    assert f"was killed by signal {int(number)};" in str(termination.WorkerFailedError(1, -number))
