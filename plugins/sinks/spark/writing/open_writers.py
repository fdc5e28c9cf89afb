"""The writers of one worker process: one for each stream, open and warm from task to task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .....publishers.clock import Clock, SystemClock
from .....publishers.wire import WritingPort
from ...kinesis.outgoing import Outgoing
from ...kinesis.settings import Settings
from ...kinesis.writer import KinesisWriter

MOST_STREAMS = 50
"""Writers that are open at a time: rows may name any number of streams, and each writer has connections and room of its own."""


class OpenWriters:
    """Owns the writers. Everything happens on the worker's loop, for one task at a time."""

    def __init__(self, settings: Settings, connect: Callable[[str], WritingPort], clock: Clock | None = None) -> None:
        self._settings = settings
        self._connect = connect
        self._clock = clock or SystemClock()
        self._writers: dict[str, KinesisWriter] = {}
        self._ended: Counter[str] = Counter()

    async def put(self, records: Mapping[str, Sequence[Outgoing]]) -> None:
        """Hand records over to their streams, waiting for room: the back-pressure of the task (K1). Raises: what failed."""
        for stream, some in records.items():
            await (await self._writer_of(stream)).put_all(some)

    async def flush(self) -> None:
        """Return when everything is acknowledged (K3). Raises: what failed."""
        for writer in self._writers.values():
            await writer.flush()

    async def abandon(self) -> None:
        """Let go at once: what is not acknowledged may have arrived or not."""
        while self._writers:
            _, writer = self._writers.popitem()
            self._ended.update(_counts(writer))
            await writer.abandon()

    def totals(self) -> Counter[str]:
        """The counters of all writers together, those that were let go included."""
        summed = self._ended.copy()
        for writer in self._writers.values():
            summed.update(_counts(writer))
        return summed

    async def _writer_of(self, stream: str) -> KinesisWriter:
        writer = self._writers.get(stream)
        if writer is None:
            if len(self._writers) >= MOST_STREAMS:
                await self.flush()
                await self.abandon()
            writer = KinesisWriter(self._connect(stream), stream, self._settings, self._clock)
            try:
                await writer.open()
            except BaseException:
                await writer.close()
                raise
            self._writers[stream] = writer
        return writer


def _counts(writer: KinesisWriter) -> dict[str, int]:
    return {name: value for name, value in writer.metrics().items() if isinstance(value, int)}
