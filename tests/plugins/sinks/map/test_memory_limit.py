"""What MapSink holds in memory: it has no room above `max_bytes`, and keeps nothing after its end."""

import asyncio
import gc
import weakref

import pytest

import recordpublisher as rp
from recordpublisher.testing import run_virtual

from .map_jobs import Running, keyed, settled, written
from fakes.batches import batch


def test_closing_frees_what_was_not_handled():
    async def job():
        sink = rp.MapSink(Running())
        made = keyed("a", "a", "b")
        left = weakref.ref(made)
        await written(sink, made)
        del made
        await sink.close()
        return left

    left = run_virtual(job())
    gc.collect()
    assert left() is None


def test_writing_waits_while_too_many_bytes_are_not_handled():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, max_bytes=1)
        await written(sink, keyed("a"))
        writing = asyncio.ensure_future(sink.write(batch(b"next")))
        await settled()
        waited = not writing.done()
        handler.open[b"0"].set_result(None)
        await writing
        await sink.close()
        return waited

    assert run_virtual(job())


def test_a_full_sink_has_no_room_until_a_batch_is_handled_and_says_so():
    async def job():
        handler, resumed = Running(), []
        sink = rp.MapSink(handler, max_bytes=1)
        await written(sink, keyed("a", "b"), resume_writing=lambda: resumed.append(sink.has_room()))
        found = [sink.has_room()]
        for number in (b"0", b"1"):
            handler.open[number].set_result(None)
            await settled()
            found.append(list(resumed))
        await sink.close()
        return found

    assert run_virtual(job()) == [False, [], [True]]


def test_a_full_sink_has_room_for_the_write_that_raises_a_failure():
    async def job():
        resumed = []

        async def fail(record):
            raise ValueError("no")

        sink = rp.MapSink(fail, max_bytes=1, retries=1)
        await written(sink, keyed("a"), resume_writing=lambda: resumed.append(sink.has_room()))
        assert not sink.has_room()
        await asyncio.sleep(1)
        with pytest.raises(rp.SinkError, match="2 attempts"):
            await sink.write(keyed("a"))
        await sink.close()
        return resumed

    assert run_virtual(job()) == [True]
