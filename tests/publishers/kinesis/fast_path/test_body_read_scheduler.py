"""Large bodies are read one after the other."""

import asyncio

from recordpublisher.publishers.kinesis.fast_path.body_read_scheduler import BodyReadScheduler


class Reader:
    def __init__(self):
        self.paused = False

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False


async def iteration_with(scheduler, *readers):
    """One iteration of the loop in which these readers have more to read than fits into one read."""
    await asyncio.sleep(0)
    for reader in readers:
        if not reader.paused:
            scheduler.wait_turn(reader)


async def test_one_connection_reads_and_the_others_wait_in_order():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    for _ in range(5):
        await iteration_with(scheduler, a, b, c)
    assert [a.paused, b.paused, c.paused] == [False, True, True]
    scheduler.finish(a)
    await iteration_with(scheduler, b, c)
    assert [b.paused, c.paused] == [False, True]


async def test_p7_a_connection_that_reads_nothing_in_an_iteration_loses_its_turn():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    await iteration_with(scheduler, a, b, c)
    for _ in range(4):
        await iteration_with(scheduler, b, c)
    assert not b.paused, "a stalled, so b may read"
    for _ in range(4):
        await iteration_with(scheduler)
    assert not c.paused


async def test_a_waiting_connection_that_is_finished_gets_no_turn():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    await iteration_with(scheduler, a, b, c)
    scheduler.finish(b)
    assert not b.paused
    b.pause()
    scheduler.finish(a)
    assert [b.paused, c.paused] == [True, False]


async def test_a_connection_may_read_another_body_after_the_first():
    scheduler, reader = BodyReadScheduler(), Reader()
    await iteration_with(scheduler, reader)
    scheduler.finish(reader)
    await asyncio.sleep(0)
    await iteration_with(scheduler, reader)  # a new body
    scheduler.finish(reader)
    assert not reader.paused
