"""Plays the schedule to one client: its command is started, killed and started again; what it prints is kept with the time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from threading import Thread

from recordpublisher.local import LocalKinesisThread, serve_in_thread
from recordpublisher.local.schedules.schedule import Player, Score, SeenRecord, load_schedule, score, seen_record_in

from benchmarks.processes import ENVIRONMENT

SCHEDULE = load_schedule("everything")
QUIET_SECONDS = 150
"""So long it may print nothing new before what is missing counts as lost: the KCL replaces a dead leader after two minutes."""

Start = Callable[[], list[str]]


class World:
    """The endpoint, the player of the schedule, and the client. Owns what the client has printed."""

    def __init__(self, endpoint: LocalKinesisThread, start: Start) -> None:
        self._endpoint = endpoint
        self._start = start
        self._process: subprocess.Popen[str] | None = None
        self._player = Player(endpoint.endpoint, SCHEDULE, print)
        self.printed: list[SeenRecord] = []
        self.killed = inf

    def play(self) -> Score:
        """Raises: AssertionError when the client prints nothing at first."""
        self.start()
        self._endpoint.call(self._player.advance, 0)
        first = 2 * SCHEDULE.keys
        self._wait(first)
        assert len(self._numbers()) == first, "the client does not read"
        began, wall = time.monotonic(), time.time()
        restarts = [step.at for step in SCHEDULE.step if step.client]
        while self._endpoint.call(self._player.advance, passed := time.monotonic() - began):
            if restarts and restarts[0] <= passed:
                restarts.pop(0)
                self.restart()
            time.sleep(0.05)
        self._wait(SCHEDULE.record_count)
        self.kill()
        return score(SCHEDULE.record_count, self.printed, SCHEDULE.keys, wall, self.killed)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._start(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        Thread(target=self._keep_lines, args=(self._process,)).start()

    def restart(self) -> None:
        self.kill()
        self.killed = time.time()
        self.start()

    def _numbers(self) -> set[int]:
        return {seen.number for seen in self.printed}

    def _wait(self, count: int) -> None:
        """Until so many records were printed, or nothing new came for so long."""
        known, since = 0, time.monotonic()
        while len(self._numbers()) < count and time.monotonic() - since < QUIET_SECONDS:
            found = len(self._numbers())
            if found > known:
                known, since = found, time.monotonic()
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL to the client and all that it has started, such as Spark's JVM."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _keep_lines(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            seen = seen_record_in(line, time.time())
            if seen is not None:
                self.printed.append(seen)


@contextmanager
def world(start: Callable[[str], list[str]]) -> Iterator[World]:
    """A new endpoint with two shards, and the client that `start` starts: it is given the URL each time."""
    with serve_in_thread(http2=True) as endpoint:
        made = World(endpoint, lambda: start(endpoint.url))
        try:
            yield made
        finally:
            made.kill()
