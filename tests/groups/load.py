"""SteadyLoad: a thread that sends records into every shard, some times a second, until it is ended."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from groups.worker_group import WorkerGroup

RECORDS_PER_SHARD = 3
"""On average, in each round: a shard is seldom left out."""


class SteadyLoad:
    """Owns the thread, as a context."""

    def __init__(self, group: WorkerGroup, shards: int, rounds_per_second: float) -> None:
        self._group = group
        self._count = shards * RECORDS_PER_SHARD
        self._pause = 1 / rounds_per_second
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            self._group.send(self._count)
