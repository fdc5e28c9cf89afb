"""Reads a folder as a stream: every file is a closed shard, every line a record with its line number as sequence number."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path

import recordpublisher as rp
from recordpublisher.publishers.properties import integer, text

FOLDER = text("flink.lines.folder", "The folder that holds one folder for each stream.", group="Lines")
BATCH = integer("flink.lines.batch", "Lines in a batch.", 100, 1, unit="records", group="Lines")


class LinesFactory(rp.RecordPublisherFactory):
    """Lists the files of a stream and makes their readers."""

    def __init__(self, properties: rp.Properties) -> None:
        folder = properties.value(FOLDER)
        if folder is None:
            raise rp.ConfigurationError(FOLDER.key, valid=FOLDER.valid)
        self._folder = Path(folder)
        self._batch = properties.value(BATCH)

    async def create(
        self, shard: rp.Shard, starting_position: rp.StartingPosition, metrics: rp.ShardMetrics
    ) -> LinesPublisher:
        file = self._folder / shard.stream / shard.shard_id
        done = await asyncio.to_thread(_lines_before, starting_position, file)
        return LinesPublisher(shard, file, done, self._batch, metrics)

    async def discover(self, stream: str, after: str | None) -> list[rp.Shard]:
        folder = self._folder / stream
        if not folder.is_dir():
            raise rp.StreamNotFoundError(stream)
        names = sorted(file.name for file in folder.iterdir())
        return [rp.Shard(stream, name, closed=True) for name in names if after is None or name > after]


class LinesPublisher(rp.RecordPublisher):
    """Reads one file; owns the number of the last line that the consumer accepted."""

    def __init__(self, shard: rp.Shard, file: Path, done: int, batch: int, metrics: rp.ShardMetrics) -> None:
        self._shard, self._file, self._done, self._batch, self._metrics = shard, file, done, batch, metrics

    async def run(self, consumer: rp.BatchConsumer) -> rp.RunResult:
        while lines := await asyncio.to_thread(self._read):
            batch = self._batch_of(lines)
            self._metrics.count_read(batch)
            position = await consumer(batch)
            self._done = self._done if position is None else int(position.sequence)
        return rp.RunResult.COMPLETE

    def _read(self) -> list[bytes]:
        with self._file.open("rb") as file:
            return [line.rstrip(b"\n") for line in islice(file, self._done, self._done + self._batch)]

    def _batch_of(self, lines: list[bytes]) -> rp.RecordBatch:
        arrival = self._file.stat().st_mtime
        records = [
            rp.UserRecord(line, str(number), arrival, "line") for number, line in enumerate(lines, self._done + 1)
        ]
        size = sum(map(len, lines))
        last = rp.SequenceNumber(records[-1].sequence_number)
        return rp.RecordBatch(self._shard, records, read_position=last, raw_count=len(lines), raw_bytes=size)


def _lines_before(start: rp.StartingPosition, file: Path) -> int:
    """How many lines come before a start. Lines arrive when their file is changed; a job that starts at LATEST asks by time."""
    if start.type is rp.PositionType.AFTER_SEQUENCE_NUMBER:
        return int(start.sequence_number or 0)
    if start.type is rp.PositionType.AT_SEQUENCE_NUMBER:
        return int(start.sequence_number or 1) - 1
    arrived_later = start.timestamp_ms is not None and file.stat().st_mtime * 1000 >= start.timestamp_ms
    if start.type is rp.PositionType.TRIM_HORIZON or arrived_later:
        return 0
    with file.open("rb") as lines:
        return sum(1 for _ in lines)
