"""The reactive sink: observers in a thread, back-pressure by acknowledgement."""

import asyncio
import threading

import pytest

from recordpublisher import SinkError
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks import reactive
from recordpublisher.plugins.sinks.reactive import ReactiveSink

from fakes.batches import batch

SHARD = batch(b"").shard
PATIENCE = 0.05
"""Seconds of real time after which something that did not happen is taken not to happen."""


@pytest.fixture
async def opened():
    sinks = []

    async def open_sink(buffer: int = 10) -> ReactiveSink:
        sink = ReactiveSink(buffer=buffer)
        await sink.open(SinkContext())
        sinks.append(sink)
        return sink

    yield open_sink
    for sink in sinks:
        await sink.close()


class SlowObserver:
    """Processes a batch only when the test lets it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.threads: set[int] = set()
        self._may_go_on = threading.Semaphore(0)

    def __call__(self, taken) -> None:
        self._may_go_on.acquire(timeout=60)
        self.threads.add(threading.get_ident())
        self.seen += taken.data

    def go_on(self, times: int = 1) -> None:
        self._may_go_on.release(times)


async def test_observers_see_records_in_order_and_completion(opened):
    sink, seen = await opened(), []
    sink.records.subscribe(lambda record: seen.append(record.data), on_completed=lambda: seen.append("done"))

    await sink.write(batch(b"a", b"b"))
    await sink.write(batch(b"c"))
    await sink.close()

    assert seen == [b"a", b"b", b"c", "done"]


async def test_watermarks_keep_their_place_between_batches(opened):
    sink, seen = await opened(), []
    sink.batches.subscribe(lambda taken: seen.append(taken.data))
    sink.watermarks.subscribe(seen.append)

    await sink.write(batch(b"a"))
    await sink.watermark(17)
    await sink.write(batch(b"b"))
    await sink.flush()

    assert seen == [[b"a"], 17, [b"b"]]


async def test_without_a_buffer_a_write_returns_when_the_observers_are_done(opened):
    sink, observer = await opened(buffer=0), SlowObserver()
    sink.batches.subscribe(observer)

    writing = asyncio.create_task(sink.write(batch(b"a")))
    await asyncio.sleep(PATIENCE)
    assert not writing.done()
    observer.go_on()
    await writing

    assert observer.seen == [b"a"]


async def test_a_slow_observer_slows_writes_once_the_buffer_is_full(opened):
    sink, observer = await opened(buffer=2), SlowObserver()
    sink.batches.subscribe(observer)
    await sink.write(batch(b"a"))
    await sink.write(batch(b"b"))

    third = asyncio.create_task(sink.write(batch(b"c")))
    await asyncio.sleep(PATIENCE)
    assert not third.done()
    assert sink.waiting_records == 2
    observer.go_on()
    await third
    observer.go_on(2)
    await sink.flush()

    assert observer.seen == [b"a", b"b", b"c"]


async def test_a_batch_larger_than_the_buffer_is_accepted_alone(opened):
    sink, observer = await opened(buffer=1), SlowObserver()
    sink.batches.subscribe(observer)
    await sink.write(batch(b"a"))

    writing = asyncio.create_task(sink.write(batch(b"b", b"c", b"d")))
    await asyncio.sleep(PATIENCE)
    assert sink.waiting_records == 1
    observer.go_on(2)
    await writing

    assert observer.seen == [b"a", b"b", b"c", b"d"]


async def test_flush_waits_for_the_observers(opened):
    sink, observer = await opened(), SlowObserver()
    sink.batches.subscribe(observer)
    await sink.write(batch(b"a"))

    flushing = asyncio.create_task(sink.flush())
    await asyncio.sleep(PATIENCE)
    assert not flushing.done()
    observer.go_on()
    await flushing

    assert observer.seen == [b"a"]


async def test_observers_share_one_thread_that_is_not_the_loops(opened):
    sink, observer = await opened(), SlowObserver()
    sink.batches.subscribe(observer)
    observer.go_on(2)

    await sink.write(batch(b"a"))
    await sink.write(batch(b"b"))
    await sink.flush()

    assert len(observer.threads) == 1
    assert threading.get_ident() not in observer.threads


async def test_an_observer_that_raises_fails_the_sink_and_the_others_get_on_error(opened):
    sink, heard = await opened(), []

    def broken(_) -> None:
        raise KeyError("carrier")

    sink.batches.subscribe(broken)
    sink.batches.subscribe(lambda _: None)
    sink.records.subscribe(on_error=heard.append)

    with pytest.raises(
        SinkError, match=r"an observer that subscribed to the sink raised KeyError: 'carrier'"
    ) as raised:
        await write_and_flush(sink)
    with pytest.raises(SinkError):
        await sink.write(batch(b"b"))

    assert isinstance(raised.value.__cause__, KeyError)
    assert [type(error) for error in heard] == [KeyError]


async def test_a_cancelled_flush_loses_nothing(opened):
    sink, observer = await opened(), SlowObserver()
    sink.batches.subscribe(observer)
    await sink.write(batch(b"a"))
    await sink.write(batch(b"b"))

    flushing = asyncio.create_task(sink.flush())
    await asyncio.sleep(PATIENCE)
    flushing.cancel()
    observer.go_on(2)
    await sink.flush()

    assert observer.seen == [b"a", b"b"]


async def test_the_number_of_queued_watermarks_is_bounded(opened):
    sink, observer = await opened(), SlowObserver()
    sink.batches.subscribe(observer)
    await sink.write(batch(b"a"))

    async def flood() -> None:
        for watermark in range(2_000):
            await sink.watermark(watermark)

    flooding = asyncio.create_task(flood())
    await asyncio.sleep(PATIENCE)
    assert not flooding.done()
    observer.go_on()
    await flooding


async def test_a_sink_that_is_not_open_raises():
    with pytest.raises(SinkError, match="not open"):
        await ReactiveSink().write(batch(b"a"))


async def write_and_flush(sink: ReactiveSink) -> None:
    await sink.write(batch(b"a"))
    await sink.flush()


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_what_an_observer_raises_fails_the_sink_whatever_it_is(opened, raised):
    sink = await opened()

    def broken(_) -> None:
        raise raised

    sink.batches.subscribe(broken)
    with pytest.raises(SinkError, match=f"an observer that subscribed to the sink raised {raised.__name__}"):
        await write_and_flush(sink)


async def test_close_raises_what_on_completed_raises():
    sink = ReactiveSink()
    await sink.open(SinkContext())

    def broken() -> None:
        raise KeyError("end")

    sink.records.subscribe(lambda _: None, on_completed=broken)
    with pytest.raises(SinkError, match="KeyError: 'end'"):
        await sink.close()


class Lease:
    """Whether the job may write; a sink that asks is noticed."""

    def __init__(self) -> None:
        self.is_given, self.asked = False, asyncio.Event()

    def __call__(self) -> bool:
        self.asked.set()
        return self.is_given


@pytest.fixture
async def leased():
    lease, seen = Lease(), []
    sink = ReactiveSink(buffer=1)
    await sink.open(SinkContext(may_write=lease))
    sink.batches.subscribe(lambda taken: seen.extend(taken.data))
    yield sink, lease, seen
    await sink.close()


async def test_e4_observers_get_nothing_while_the_job_may_not_write(leased):
    sink, lease, seen = leased
    await sink.write(batch(b"a"))
    lease.asked.clear()
    await lease.asked.wait()
    assert seen == []
    lease.is_given = True
    await sink.flush()
    assert seen == [b"a"]


async def test_e4_what_is_queued_of_a_revoked_shard_is_dropped(leased):
    sink, lease, seen = leased
    await sink.write(batch(b"a"))
    sink.revoked([SHARD.key])
    lease.is_given = True
    await sink.write(batch(b"b"))
    await sink.flush()
    assert seen == [b"b"]


async def test_e4_no_position_of_a_revoked_shard_is_stored(leased, monkeypatch):
    monkeypatch.setattr(reactive, "PARTIAL_FLUSH_SECONDS", PATIENCE)
    sink, _, _ = leased
    await sink.write(batch(b"a"))
    of_shard = Checkpoint({"shards": {SHARD.key: {}}}, may_be_partial=True)
    assert await sink.flush(of_shard) == {"shards": {}}
    sink.revoked([SHARD.key])
    await sink.flush()
    assert await sink.flush(Checkpoint({"shards": {}}, may_be_partial=True)) == {"shards": {}}


async def test_e4_writes_do_not_wait_for_a_permission_and_close_drops_what_has_none(leased):
    sink, _, seen = leased
    await sink.write(batch(b"a", b"b"))
    assert not sink.has_room()
    await sink.close()
    assert seen == []


async def test_a_partial_checkpoint_gets_the_newest_state_that_the_observers_have_finished(opened, monkeypatch):
    monkeypatch.setattr(reactive, "PARTIAL_FLUSH_SECONDS", PATIENCE)
    sink, observer = await opened(), SlowObserver()
    sink.batches.subscribe(observer)
    first = {"shards": {"s": {"number": 1}}}
    await sink.flush(Checkpoint(first))
    await sink.write(batch(b"a"))

    second = {"shards": {"s": {"number": 2}}}
    assert await sink.flush(Checkpoint(second, may_be_partial=True)) == first
    assert sink.unfinished().records == sink.unfinished().calls == 1
    assert sink.unfinished().shards[SHARD.key].records == 1
    observer.go_on()
    assert await sink.flush(Checkpoint(second)) == second


async def test_the_job_is_asked_to_write_again_when_there_is_room():
    resumed = asyncio.Event()
    sink = ReactiveSink(buffer=0)
    await sink.open(SinkContext(resume_writing=resumed.set))
    await sink.write(batch(b"a"))
    await resumed.wait()
    assert sink.has_room()
    await sink.close()


async def test_a_sink_that_was_closed_is_refused_because_its_observers_would_get_nothing():
    sink = ReactiveSink()
    await sink.open(SinkContext())
    await sink.close()
    with pytest.raises(SinkError, match="its observers were completed: make another ReactiveSink"):
        await sink.open(SinkContext())
