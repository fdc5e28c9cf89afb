"""BackgroundLoop: asynchronous work for callers that are not, and nothing left behind."""

import asyncio
import signal
import threading

import pytest

from recordpublisher.plugins.runtime.background_loop import BackgroundLoop


async def _answer(what):
    await asyncio.sleep(0)
    return what


async def _fail():
    raise OSError("no")


def test_run_returns_results_and_raises_errors():
    with BackgroundLoop("test") as loop:
        assert loop.run(_answer(5)) == 5
        with pytest.raises(OSError, match="no"):
            loop.run(_fail())


def test_all_work_runs_in_one_thread_that_ends():
    async def name():
        return threading.current_thread().name

    with BackgroundLoop("a name") as loop:
        assert {loop.run(name()) for _ in range(3)} == {"a name"}

    assert "a name" not in {thread.name for thread in threading.enumerate()}


def test_an_interruption_cancels_and_waits():
    ended, caller = [], threading.get_ident()

    async def long():
        try:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.sleep(100)
        finally:
            ended.append(True)

    with BackgroundLoop("test") as loop, pytest.raises(KeyboardInterrupt):
        loop.run(long())

    assert ended == [True]


def test_a_second_interruption_waits_until_the_first_has_closed_everything():
    ended, caller = [], threading.get_ident()

    async def long():
        try:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.sleep(100)
        finally:
            for _ in range(3):
                signal.pthread_kill(caller, signal.SIGINT)
                await asyncio.sleep(0.02)
            ended.append(True)

    with BackgroundLoop("test") as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run(long())
        assert ended == [True]


def test_an_interruption_while_closing_is_raised_when_it_is_closed():
    closed, caller = [], threading.get_ident()

    async def close():
        signal.pthread_kill(caller, signal.SIGINT)
        await asyncio.sleep(0.02)
        closed.append(True)

    with BackgroundLoop("test") as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.close(close())
        assert closed == [True]


def test_who_interrupts_again_after_some_seconds_waits_no_longer():
    caller, may_end = threading.get_ident(), threading.Event()

    async def long():
        try:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.sleep(100)
        finally:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.to_thread(may_end.wait)

    with BackgroundLoop("test", patience_seconds=-1) as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run(long())
        may_end.set()


class InterruptedOnce(threading.Event):
    """Where an interruption strikes that comes before what is waited for."""

    def __init__(self):
        super().__init__()
        self.strikes = [KeyboardInterrupt]

    def wait(self, timeout=None):
        if self.strikes:
            raise self.strikes.pop()
        return super().wait(timeout)


def test_an_interruption_while_the_thread_starts_leaves_no_thread():
    loop = BackgroundLoop("interrupted")
    loop._ready = InterruptedOnce()
    with pytest.raises(KeyboardInterrupt), loop:
        pytest.fail("it was entered")

    assert "interrupted" not in {thread.name for thread in threading.enumerate()}


def test_an_interruption_before_the_work_has_begun_leaves_none(monkeypatch):
    begun, strikes = [], [KeyboardInterrupt]

    async def work():
        begun.append(True)

    with BackgroundLoop("test") as loop:
        real = loop._loop.call_soon_threadsafe

        def interrupted(*given):
            if strikes:
                raise strikes.pop()
            return real(*given)

        monkeypatch.setattr(loop._loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(work())
        assert loop.run(_answer(5)) == 5

    assert begun == []
