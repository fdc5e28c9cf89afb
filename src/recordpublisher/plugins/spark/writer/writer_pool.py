"""The writers of one worker process, one for each stream, which are kept open between tasks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from recordpublisher.plugins.sinks.kinesis.records import FailedRecord, PendingRecord
from recordpublisher.plugins.sinks.kinesis.settings import KinesisSinkSettings
from recordpublisher.plugins.sinks.kinesis.writer import KinesisWriter
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.kinesis.ports import WritingPort

from .rejected_rows import RejectRow

MAX_OPEN_STREAMS = 50
"""The most writers that are open at a time. Rows may name any number of streams, and each writer has its own connections and buffers."""


class WriterPool:
    """Owns the writers. Runs on the worker's loop, for one task at a time.

    - `reports_failures`: whether a record that cannot be put is passed to `reject`, which the task sets, instead of being an error.
    """

    def __init__(
        self,
        settings: KinesisSinkSettings,
        connect: Callable[[str], WritingPort],
        clock: Clock | None = None,
        *,
        reports_failures: bool = False,
    ) -> None:
        self._settings = replace(settings, fails_on_error=False) if reports_failures else settings
        self._connect = connect
        self._clock = clock or SystemClock()
        self._reports_failures = reports_failures
        self.reject: RejectRow | None = None
        self._writers: dict[str, KinesisWriter] = {}
        self._closed_totals: Counter[str] = Counter()

    async def put(self, records: Mapping[str, Sequence[PendingRecord]]) -> None:
        """Put records into their streams, and wait while too much is outstanding (K1). Raises: the error of a writer."""
        for stream, some in records.items():
            await (await self._writer_of(stream)).put_all(some)

    async def flush(self) -> None:
        """Return when all records are acknowledged (K3). Raises: the error of a writer."""
        for writer in self._writers.values():
            await writer.flush()

    async def abandon(self) -> None:
        """Close at once. Records that are not acknowledged may or may not be in the stream."""
        while self._writers:
            _, writer = self._writers.popitem()
            self._closed_totals.update(_counts(writer))
            await writer.abort()

    def totals(self) -> Counter[str]:
        """Return the counters of all writers together, including closed writers."""
        summed = self._closed_totals.copy()
        for writer in self._writers.values():
            summed.update(_counts(writer))
        return summed

    async def _writer_of(self, stream: str) -> KinesisWriter:
        writer = self._writers.get(stream)
        if writer is None:
            if len(self._writers) >= MAX_OPEN_STREAMS:
                await self.flush()
                await self.abandon()
            on_failure = partial(self._on_failed, stream) if self._reports_failures else None
            writer = KinesisWriter(self._connect(stream), stream, self._settings, self._clock, on_failure)
            try:
                await writer.open()
            except BaseException:
                await writer.close()
                raise
            self._writers[stream] = writer
        return writer

    def _on_failed(self, stream: str, failed: FailedRecord) -> None:
        assert self.reject is not None
        self.reject(stream, failed)


def _counts(writer: KinesisWriter) -> dict[str, int]:
    return {name: value for name, value in writer.metrics().items() if isinstance(value, int)}
