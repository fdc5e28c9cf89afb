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
        return LinesPublisher(shard, file, starting_position, self._batch, metrics)

    async def discover(self, stream: str, after: str | None) -> list[rp.Shard]:
        folder = self._folder / stream
        if not folder.is_dir():
            raise rp.StreamNotFoundError(stream)
        names = sorted(file.name for file in folder.iterdir())
        return [rp.Shard(stream, name, closed=True) for name in names if after is None or name > after]


class LinesPublisher(rp.RecordPublisher):
    """Reads one file; owns the number of the last line that the consumer accepted."""

    def __init__(
        self, shard: rp.Shard, file: Path, starting_position: rp.StartingPosition, batch: int, metrics: rp.ShardMetrics
    ) -> None:
        self._shard, self._file, self._batch, self._metrics = shard, file, batch, metrics
        self._done = _lines_done(starting_position)

    async def run(self, consumer: rp.BatchConsumer) -> rp.RunResult:
        while lines := await asyncio.to_thread(self._read):
            position = await consumer(self._batch_of(lines))
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
        self._metrics.reads += 1
        self._metrics.number_of_deaggregated_records += len(lines)
        self._metrics.bytes_read += size
        last = rp.SequenceNumber(records[-1].sequence_number)
        return rp.RecordBatch(self._shard, records, read_position=last, raw_count=len(lines), raw_bytes=size)


def _lines_done(position: rp.StartingPosition) -> int:
    """How many lines come before a position; a file has no times, so a start by time reads all of it."""
    if position.type is rp.PositionType.AFTER_SEQUENCE_NUMBER:
        return int(position.sequence_number or 0)
    if position.type is rp.PositionType.AT_SEQUENCE_NUMBER:
        return int(position.sequence_number or 1) - 1
    return 0
