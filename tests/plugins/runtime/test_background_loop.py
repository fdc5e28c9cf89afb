"""BackgroundLoop: asynchronous work for callers that are not, and nothing left behind."""

import asyncio
import gc
import os
import signal
import threading

import pytest

from recordpublisher.plugins.runtime import background_loop
from recordpublisher.plugins.runtime.background_loop import BackgroundLoop
from recordpublisher.plugins.runtime.stream_and_consume import in_background
from recordpublisher.publishers.errors import RecordPublisherError


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


def test_a_loop_that_cannot_be_made_is_an_error_and_no_wait_without_end():
    """Without file descriptors no loop can be made."""
    raised = []

    def too_many_open_files():
        raise OSError(24, "Too many open files")

    def enter():
        try:
            BackgroundLoop("test", loop_factory=too_many_open_files).__enter__()
        except OSError as error:
            raised.append(error.errno)

    entering = threading.Thread(target=enter, daemon=True)
    entering.start()
    entering.join(10)
    assert raised == [24]


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


def test_a_forked_process_is_told_that_the_loop_is_its_parents():
    with BackgroundLoop("rp.consume") as loop:
        assert loop.run(_answer(5)) == 5
        child = os.fork()
        if not child:
            signal.alarm(10)
            try:
                loop.run(_answer(5))
            except RecordPublisherError as error:
                loop.close(_answer(None))
                loop.__exit__(None, None, None)
                os._exit("rp.consume was started before a fork" not in str(error))
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert loop.run(_answer(6)) == 6


def test_a_loop_that_work_has_ended_ends_the_waiting():
    async def end():
        raise KeyboardInterrupt

    with BackgroundLoop("test") as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run(end())
        loop._thread.join(10)
        with pytest.raises(RecordPublisherError, match="has ended"):
            loop.run(_answer(5))


def test_work_that_exceeds_its_timeout_is_cancelled_and_has_ended():
    ended = []

    async def long():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(True)

    with BackgroundLoop("test") as loop:
        with pytest.raises(TimeoutError):
            loop.run(long(), timeout=0.01)
        assert ended == [True]


def test_work_that_ends_well_in_spite_of_its_cancellation_has_its_result():
    async def stubborn():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return 5

    with BackgroundLoop("test") as loop:
        assert loop.run(stubborn(), timeout=0) == 5


def test_work_that_waits_for_its_own_loop_is_told_so():
    async def wait():
        loop.run(_answer(5))

    with BackgroundLoop("test") as loop, pytest.raises(RecordPublisherError, match="cannot wait for itself"):
        loop.run(wait())


@pytest.mark.parametrize("place", ["the loop's thread", "its pool"])
def test_a_read_that_the_garbage_collector_closes_in_a_thread_of_its_loop_is_closed_without_a_wait(place):
    """A read that was left half-way, in a reference cycle, is collected by whichever thread allocates."""
    closed, collected = threading.Event(), threading.Event()
    loops = []

    async def items():
        loops.append(asyncio.get_running_loop())
        try:
            while True:
                yield 5
        finally:
            await asyncio.sleep(0.01)
            closed.set()

    class Cycle:
        def __init__(self):
            self.itself, self.read = self, in_background("left half-way", items())

    def collect():
        gc.collect()
        collected.set()

    def leave_half_way():
        assert next(Cycle().read) == 5

    gc.disable()
    try:
        leave_half_way()
        loop = loops.pop()
        if place == "its pool":
            asyncio.run_coroutine_threadsafe(asyncio.to_thread(collect), loop)
        else:
            loop.call_soon_threadsafe(collect)
        del loop
        assert collected.wait(60)
        assert closed.wait(60)
    finally:
        gc.enable()
    for thread in threading.enumerate():
        if thread.name == "left half-way":
            thread.join(60)
    assert "left half-way" not in {thread.name for thread in threading.enumerate()}


def test_a_wait_without_a_limit_looks_for_signals_again_and_again():
    """One that came just before a wait began would not wake it."""
    waits = []

    class SetAtTheFourthWait(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            return len(waits) == 4

    assert background_loop._wait(SetAtTheFourthWait())
    assert len(waits) == 4
    assert all(timeout is not None and timeout <= 1 for timeout in waits)
