"""`recordpublisher lag --watch`: on a terminal, in a pipe, and while the service is away."""

import asyncio
import os
import pty
import re
import signal
import struct
import termios
from contextlib import ExitStack, contextmanager
from fcntl import ioctl

import pytest

from recordpublisher.cli.lag_view import SnapshotWatch
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from processes.command_line import process_environment
from processes.forked.command import ForkedCommand

SHARDS = 30


class Source:
    """Reads snapshots of the moment; the readings of these numbers fail, and one may never end."""

    def __init__(self, *failing, hangs_at=None):
        self.failing = failing
        self.hangs_at = hangs_at
        self.count = 0

    async def snapshot(self):
        self.count += 1
        if self.count == self.hangs_at:
            await asyncio.Event().wait()
        if self.count in self.failing:
            raise StoreUnavailableError("the store cannot be reached")
        return JobSnapshot(time_ms=VirtualClock().now_ms(), shards=[])


def shown_within(seconds, source, draw_seconds=None):
    """When each shown snapshot was read, when it was shown, in seconds, and the error beside it."""
    shown = []

    def show(snapshot, now_ms, error):
        shown.append(((snapshot.time_ms - EPOCH_MS) / 1000, (now_ms - EPOCH_MS) / 1000, error))

    async def run():
        async with asyncio.timeout(seconds):
            await SnapshotWatch(source, VirtualClock(), 2.0, show).run(draw_seconds)

    with pytest.raises(TimeoutError):
        run_virtual(run())
    return shown


def test_each_reading_is_shown():
    assert shown_within(5.0, Source()) == [(0, 0, None), (2, 2, None), (4, 4, None)]


def test_the_age_is_shown_anew_between_readings():
    assert shown_within(3.5, Source(hangs_at=2), draw_seconds=1.0) == [(0, second, None) for second in range(4)]


def test_values_stay_while_reading_fails():
    error = "the store cannot be reached"

    assert shown_within(7.0, Source(2, 3)) == [(0, 0, None), (0, 2, error), (0, 4, error), (6, 6, None)]


def test_the_first_reading_must_succeed():
    watch = SnapshotWatch(Source(1), VirtualClock(), 2.0, lambda *shown: None)

    with pytest.raises(StateError):
        run_virtual(watch.run())


@contextmanager
def watching(served, stdout, *options, **environment):
    """`lag orders --watch` as a process."""
    given = {**served.endpoint.properties(), "flink.list.shards.maxretries": 0, "flink.shard.getrecords.maxretries": 0}
    pairs = [part for key, value in given.items() for part in ("-p", f"{key}={value}")]
    arguments = ["lag", "orders", "--interval", "0.1", *pairs, *options]
    with open(os.devnull) as nothing:
        process = ForkedCommand(
            *arguments, environment=process_environment(**environment), streams=(nothing.fileno(), stdout, 2)
        )
    try:
        yield process
    finally:
        process.kill()


def read_until(descriptor, pattern):
    """What arrives until the pattern does."""
    seen = b""
    while not re.search(pattern, seen):
        block = os.read(descriptor, 65_536)
        assert block, seen
        seen += block
    return seen


def read_to_the_end(descriptor):
    """What arrives until the process has closed the other end; a process that writes into a full pipe cannot end."""
    seen = b""
    try:
        while block := os.read(descriptor, 65_536):
            seen += block
    except OSError:  # a terminal on Linux
        pass
    os.close(descriptor)
    return seen


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_has_one_view_that_says_when_its_values_are_old(no_color):
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 90, 0, 0))
    with ExitStack() as service:
        served = service.enter_context(serve_in_thread(streams={"orders": SHARDS}))
        with watching(served, theirs, NO_COLOR=no_color, TERM="xterm") as process:
            os.close(theirs)
            seen = read_until(ours, rb"\d+ more with less lag")
            service.close()
            seen += read_until(ours, rb"the values are old because reading fails")
            process.send_signal(signal.SIGINT)
            seen += read_to_the_end(ours)
            assert process.wait(timeout=60) == 0

    assert seen.startswith(b"\x1b[?1049h")
    assert seen.rstrip().endswith(b"\x1b[?1049l"), "the terminal is as it was"
    assert (b"\x1b[1mSHARD" in seen) is (not no_color)
    assert f"{SHARDS} shards".encode() in seen


def test_without_a_terminal_each_reading_is_a_table_of_all_shards():
    ours, theirs = os.pipe()
    with serve_in_thread(streams={"orders": SHARDS}) as served, watching(served, theirs) as process:
        os.close(theirs)
        seen = read_until(ours, rb"(?s)SHARD.*SHARD.*shardId-0000000000%d.*\n\n" % (SHARDS - 1))
        process.send_signal(signal.SIGINT)
        read_to_the_end(ours)
        assert process.wait(timeout=60) == 0

    table = seen.decode().split("\n\n")[0]
    assert "\x1b" not in table
    assert len(re.findall(r"(?m)^shardId", table)) == SHARDS


def test_a_reader_that_has_gone_is_one_error_not_a_group():
    async def run():
        def show(snapshot, now_ms, error):
            if source.count == 2:
                raise BrokenPipeError

        source = Source()
        await SnapshotWatch(source, VirtualClock(), 1, show).run(1)

    with pytest.raises(BrokenPipeError):
        run_virtual(run())
