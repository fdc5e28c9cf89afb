"""What a job shares with the service, such as a registered consumer, stays after a run that failed: the restart needs it (F8)."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.errors import KinesisError, StreamNotFoundError
from recordpublisher.testing import run_virtual

from fakes.scripted_source import TIP, RecordingSink, ScriptedSource, make_fetcher


class KeepingSource(ScriptedSource):
    """Records whether it was told to leave what is shared."""

    has_kept = False

    def keep_shared(self):
        self.has_kept = True


async def full_disk(*_, **__):
    raise OSError("the disk is full")


def source_of_two_streams():
    source = KeepingSource()
    source.add("a", 1, 2)
    source.add("b", 3, stream="t")
    return source


async def run_and_close(source, bounds=TIP, failing=None):
    """`failing`: the method of the sink that fails in the run."""
    sink = RecordingSink()
    fetcher = make_fetcher(source, sink, streams=("s", "t"))
    await fetcher.open()
    if failing is not None:
        setattr(sink, failing, full_disk)
    try:
        await fetcher.run_bounded(bounds)
    finally:
        await fetcher.close()


@pytest.mark.parametrize("method", ["write", "flush"])
def test_f8_what_is_shared_stays_when_the_sink_fails(method):
    source = source_of_two_streams()
    with pytest.raises(OSError, match="full"):
        run_virtual(run_and_close(source, failing=method))
    assert source.has_kept


def test_f8_what_is_shared_stays_when_a_read_fails():
    source = source_of_two_streams()
    source.failing["s/a"] = KinesisError("SubscribeToShard", "KMSDisabledException", "no")
    with pytest.raises(KinesisError):
        run_virtual(run_and_close(source))
    assert source.has_kept


def test_f8_what_is_shared_is_released_when_the_job_ends_also_without_a_stream_that_was_deleted():
    source = source_of_two_streams()
    source.failing["t/b"] = StreamNotFoundError("t")
    run_virtual(run_and_close(source, Bounds(max_time=5)))
    assert not source.has_kept


def test_f8_what_is_shared_is_released_after_a_cancelled_run():
    source = source_of_two_streams()

    async def story():
        running = asyncio.create_task(run_and_close(source, Bounds()))
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(story())
    assert not source.has_kept


def test_f8_what_is_shared_is_released_when_the_run_after_a_failed_one_ended_well():
    source, sink = source_of_two_streams(), RecordingSink()
    write, sink.write = sink.write, full_disk

    async def story():
        fetcher = make_fetcher(source, sink, streams=("s", "t"))
        await fetcher.open()
        with pytest.raises(OSError, match="full"):
            await fetcher.run_bounded(TIP)
        sink.write = write
        await fetcher.run_bounded(TIP)
        await fetcher.close()

    run_virtual(story())
    assert not source.has_kept
