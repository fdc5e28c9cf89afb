"""`handle_signals`: the first signal stops the run with a checkpoint, the second acts as without it."""

import asyncio
import os
import signal
import threading

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import EndReason
from recordpublisher.plugins.runtime import stop_signals
from recordpublisher.plugins.runtime.stop_signals import STOP_SIGNALS

from fakes.memory_streams import PROPERTIES, install
from fakes.stored_job import states_in

NUMBERS = [signal.SIGTERM, signal.SIGINT]


class StoppingSink(rp.MemorySink):
    """Sends this process a signal in its first write."""

    def __init__(self, number):
        super().__init__()
        self._number = number

    async def write(self, batch):
        await super().write(batch)
        if len(self.batches) == 1:
            signal.raise_signal(self._number)


@pytest.fixture(autouse=True)
def _orders(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2", b"3", b"4"]}, closed=False)


@pytest.fixture
def terminated():
    """The SIGTERMs that reach the handler of before."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def fetcher(sink, **options):
    return rp.DataFetcher(["orders"], PROPERTIES, sink=sink, handle_signals=True, **options)


@pytest.mark.parametrize("number", NUMBERS)
async def test_the_first_signal_ends_the_run_with_a_checkpoint(number, tmp_path):
    store = rp.FolderStore(tmp_path)
    async with fetcher(StoppingSink(number), state_store=store) as job:
        result = await job.run()
        stored = job.snapshot()

    assert result.reason is EndReason.STOPPED
    assert await states_in(store) == stored["shards"]


async def test_a_signal_wakes_a_loop_that_waits():
    stopped = asyncio.Event()
    STOP_SIGNALS.add(stopped.set)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        await stopped.wait()
    finally:
        STOP_SIGNALS.remove(stopped.set)


async def test_the_handlers_of_before_are_set_again():
    before = [signal.getsignal(number) for number in NUMBERS]
    async with fetcher(rp.MemorySink()):
        assert [signal.getsignal(number) for number in NUMBERS] != before
    assert [signal.getsignal(number) for number in NUMBERS] == before


async def test_a_signal_that_a_supervisor_repeats_at_once_is_the_first_one(terminated):
    async with fetcher(rp.MemorySink()):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert terminated == []


async def test_the_second_signal_acts_as_without_it(terminated, monkeypatch):
    monkeypatch.setattr(stop_signals, "REPEATED_SECONDS", 0.0)
    async with fetcher(rp.MemorySink()):
        signal.raise_signal(signal.SIGTERM)
        assert terminated == []
        signal.raise_signal(signal.SIGTERM)
    assert terminated == [signal.SIGTERM]


async def test_one_signal_stops_every_fetcher_of_the_process():
    async with fetcher(rp.MemorySink()) as one, fetcher(StoppingSink(signal.SIGTERM)) as other:
        ended = await asyncio.gather(one.run(), other.run())
    assert [each.reason for each in ended] == [EndReason.STOPPED] * 2


async def test_a_handler_that_was_set_later_stays(terminated):
    async with fetcher(rp.MemorySink()):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


async def test_another_thread_is_refused():
    async def open_in_thread():
        async with fetcher(rp.MemorySink()):
            pass

    with pytest.raises(rp.ConfigurationError, match=r"handle_signals.*main thread"):
        await asyncio.to_thread(asyncio.run, open_in_thread())


def test_a_fetcher_whose_loop_was_closed_hides_no_other(terminated):
    """As a notebook may leave one behind."""
    signals, stopped = stop_signals.StopSignals(), []

    async def add(name):
        signals.add(lambda: stopped.append(name))
        if name == "running":
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)

    for name in ("closed", "running"):
        asyncio.run(add(name))
    signals._restore()

    assert stopped == ["running"]


@pytest.mark.parametrize("has_handler", [True, False])
async def test_a_handler_of_a_server_that_is_replaced_is_told(has_handler, caplog):
    def of_server(number, frame):
        pass

    before = signal.signal(signal.SIGTERM, of_server if has_handler else signal.SIG_DFL)
    try:
        async with fetcher(rp.MemorySink()):
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    told = [line for line in caplog.messages if "handle_signals replaces another handler of SIGTERM" in line]
    assert len(told) == has_handler
    assert all("of_server" in line for line in told)
