"""Plays the schedule to one client: its command is started, killed and started again; what it prints is kept with the time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from recordpublisher.local import LocalKinesisThread, serve_in_thread

from benchmarks.processes import ENVIRONMENT
from compare.truth.scoring import KEYS, Score, score

RECORDS_A_SECOND = 100
THROTTLING = "throttle@GetRecords=0.3, throttle@SubscribeToShard=0.3"
LOST = "lost@GetRecords=0.3, cut=0.1"
STEPS = (
    (5, "three in ten of GetRecords and SubscribeToShard are throttled", lambda world: world.faults(THROTTLING)),
    (10, "the end of it", lambda world: world.faults("")),
    (12, "three in ten answers of GetRecords are lost, one in ten events is cut", lambda world: world.faults(LOST)),
    (17, "the end of it", lambda world: world.faults("")),
    (18, "a split", lambda world: world.split()),
    (23, "a merge", lambda world: world.merge()),
    (30, "the client is killed; a split; the client starts again", lambda world: world.restart()),
    (40, "the producer ends", lambda world: None),
)
"""Seconds after the client has printed its first records."""
QUIET_SECONDS = 150
"""So long it may print nothing new before what is missing counts as lost: the KCL replaces a dead leader after two minutes."""

Start = Callable[[], list[str]]


class World:
    """The endpoint, the producer's records, and the client. Owns the times of what was put and printed."""

    def __init__(self, endpoint: LocalKinesisThread, start: Start) -> None:
        self._endpoint = endpoint
        self._start = start
        self._process: subprocess.Popen[str] | None = None
        self.put: dict[int, float] = {}
        self.printed: list[tuple[float, int]] = []
        self.killed = 0.0

    def play(self) -> Score:
        """Raises: TimeoutError when the client prints nothing at first."""
        self.start()
        self._put(2 * KEYS)
        self._wait()
        assert self._is_complete(), "the client does not read"
        began = time.monotonic()
        for seconds, _, act in STEPS:
            self._put_until(began, seconds)
            act(self)
        self._wait()
        self._kill()
        return score(self.put, self.printed, began, self.killed)

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

    def faults(self, rules: str) -> None:
        faults = self._endpoint.endpoint.faults
        self._endpoint.call(faults.stop_random)
        if rules:
            self._endpoint.call(faults.start_random, rules, 1)

    def split(self) -> None:
        self._endpoint.call(self._split_first)

    def merge(self) -> None:
        self._endpoint.call(self._merge_first)

    def restart(self) -> None:
        self._kill()
        self.killed = time.monotonic()
        self.split()
        self.start()

    def _split_first(self) -> None:
        from recordpublisher.local.streams.resharding import split

        stream = self._endpoint.endpoint.stream("orders")
        shard = stream.open_shards[0]
        split(stream, shard, (shard.hash_range.start + shard.hash_range.end) // 2)

    def _merge_first(self) -> None:
        from recordpublisher.local.streams.resharding import merge

        stream = self._endpoint.endpoint.stream("orders")
        merge(stream, *stream.open_shards[:2])

    def _put(self, count: int) -> None:
        stream = self._endpoint.stream("orders")
        for _ in range(count):
            number = len(self.put)
            self.put[number] = time.monotonic()
            stream.put(str(number), key=f"key-{number % KEYS}")

    def _put_until(self, began: float, seconds: int) -> None:
        while (passed := time.monotonic() - began) < seconds:
            self._put(2 * KEYS + int(passed * RECORDS_A_SECOND) - len(self.put))
            time.sleep(0.05)

    def _is_complete(self) -> bool:
        return len({number for _, number in self.printed}) == len(self.put)

    def _wait(self) -> None:
        """Until all was printed, or nothing new came for so long."""
        known, since = 0, time.monotonic()
        while not self._is_complete() and time.monotonic() - since < QUIET_SECONDS:
            found = len({number for _, number in self.printed})
            if found > known:
                known, since = found, time.monotonic()
            time.sleep(0.2)

    def _kill(self) -> None:
        """SIGKILL to the client and all that it has started, such as Spark's JVM."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _keep_lines(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.printed.append((time.monotonic(), int(line.split()[1])))


@contextmanager
def world(start: Callable[[str], list[str]]) -> Iterator[World]:
    """A new endpoint with two shards, and the client that `start` starts: it is given the URL each time."""
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint:
        made = World(endpoint, lambda: start(endpoint.url))
        try:
            yield made
        finally:
            made._kill()
