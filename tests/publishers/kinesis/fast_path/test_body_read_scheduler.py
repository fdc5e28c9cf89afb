"""One large body after the other."""

import asyncio

from recordpublisher.publishers.kinesis.fast_path.body_read_scheduler import BodyReadScheduler


class Reader:
    def __init__(self):
        self.paused = False

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False


async def round_of(scheduler, *readers):
    """One round of the loop in which these have more to read than they can."""
    await asyncio.sleep(0)
    for reader in readers:
        if not reader.paused:
            scheduler.wait_turn(reader)


async def test_one_reads_and_the_others_wait_in_line():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    for _ in range(5):
        await round_of(scheduler, a, b, c)
    assert [a.paused, b.paused, c.paused] == [False, True, True]
    scheduler.finish(a)
    await round_of(scheduler, b, c)
    assert [b.paused, c.paused] == [False, True]


async def test_p7_who_brings_nothing_in_a_round_has_lost_its_turn():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    await round_of(scheduler, a, b, c)
    for _ in range(4):
        await round_of(scheduler, b, c)
    assert not b.paused, "a stalled, so b may read"
    for _ in range(4):
        await round_of(scheduler)
    assert not c.paused


async def test_who_leaves_the_line_is_not_called():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    await round_of(scheduler, a, b, c)
    scheduler.finish(b)
    assert not b.paused
    b.pause()
    scheduler.finish(a)
    assert [b.paused, c.paused] == [True, False]


async def test_nobody_is_looked_at_once_all_is_read():
    scheduler, reader = BodyReadScheduler(), Reader()
    await round_of(scheduler, reader)
    scheduler.finish(reader)
    await asyncio.sleep(0)
    await round_of(scheduler, reader)  # a new body
    scheduler.finish(reader)
    assert not reader.paused
