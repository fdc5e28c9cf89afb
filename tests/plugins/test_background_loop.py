"""BackgroundLoop: asynchronous work for callers that are not, and nothing left behind."""

import asyncio
import signal
import threading

import pytest

from recordpublisher.plugins.background_loop import BackgroundLoop


async def _answer(what):
    await asyncio.sleep(0)
    return what


async def _fail():
    raise OSError("no")


def test_it_answers_and_raises():
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


@pytest.fixture
def interruptible():
    """A shell that starts tests in the background makes them deaf to SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_cancels_and_waits(interruptible):
    ended = []

    async def long():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(True)

    threading.Timer(0.1, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]).start()
    with BackgroundLoop("test") as loop, pytest.raises(KeyboardInterrupt):
        loop.run(long())

    assert ended == [True]
