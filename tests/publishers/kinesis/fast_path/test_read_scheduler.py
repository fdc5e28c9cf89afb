"""One large body after the other."""

import asyncio

from recordpublisher.publishers.kinesis.fast_path.read_scheduler import Turns


class Reader:
    def __init__(self):
        self.paused = False

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False


async def round_of(turns, *readers):
    """One round of the loop in which these have more to read than they can."""
    await asyncio.sleep(0)
    for reader in readers:
        if not reader.paused:
            turns.more_to_come(reader)


async def test_one_reads_and_the_others_wait_in_line():
    turns, (a, b, c) = Turns(), [Reader() for _ in range(3)]
    for _ in range(5):
        await round_of(turns, a, b, c)
    assert [a.paused, b.paused, c.paused] == [False, True, True]
    turns.leave(a)
    await round_of(turns, b, c)
    assert [b.paused, c.paused] == [False, True]


async def test_p7_who_brings_nothing_in_a_round_has_lost_its_turn():
    turns, (a, b, c) = Turns(), [Reader() for _ in range(3)]
    await round_of(turns, a, b, c)
    for _ in range(4):
        await round_of(turns, b, c)
    assert not b.paused, "a stalled, so b may read"
    for _ in range(4):
        await round_of(turns)
    assert not c.paused


async def test_who_leaves_the_line_is_not_called():
    turns, (a, b, c) = Turns(), [Reader() for _ in range(3)]
    await round_of(turns, a, b, c)
    turns.leave(b)
    assert not b.paused
    b.pause()
    turns.leave(a)
    assert [b.paused, c.paused] == [True, False]


async def test_nobody_is_looked_at_once_all_is_read():
    turns, reader = Turns(), Reader()
    await round_of(turns, reader)
    turns.leave(reader)
    await asyncio.sleep(0)
    await round_of(turns, reader)  # a new body
    turns.leave(reader)
    assert not reader.paused
