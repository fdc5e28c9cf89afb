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
        place = await asyncio.to_thread(_place_of, starting_position, file)
        return LinesPublisher(shard, file, place, self._batch, metrics)

    async def discover(self, stream: str, after: str | None) -> list[rp.Shard]:
        folder = self._folder / stream
        if not folder.is_dir():
            raise rp.StreamNotFoundError(stream)
        names = sorted(file.name for file in folder.iterdir())
        return [rp.Shard(stream, name, closed=True) for name in names if after is None or name > after]


class LinesPublisher(rp.RecordPublisher):
    """Reads one file; owns the number of the last line that the consumer accepted, and the byte behind it."""

    def __init__(
        self, shard: rp.Shard, file: Path, place: tuple[int, int], batch: int, metrics: rp.ShardMetrics
    ) -> None:
        self._shard, self._file, self._batch, self._metrics = shard, file, batch, metrics
        self._done, self._offset = place

    async def run(self, consumer: rp.BatchConsumer) -> rp.RunResult:
        while lines := await asyncio.to_thread(self._read):
            batch = self._batch_of(lines)
            self._metrics.count_read(batch)
            position = await consumer(batch)
            if position is not None:
                accepted = int(position.sequence) - self._done
                self._done += accepted
                self._offset += sum(map(len, lines[:accepted]))
        return rp.RunResult.COMPLETE

    def _read(self) -> list[bytes]:
        with self._file.open("rb") as file:
            file.seek(self._offset)
            return list(islice(file, self._batch))

    def _batch_of(self, lines: list[bytes]) -> rp.RecordBatch:
        arrival = self._file.stat().st_mtime
        records = [
            rp.UserRecord(line.rstrip(b"\n"), str(number), arrival, "line")
            for number, line in enumerate(lines, self._done + 1)
        ]
        size = sum(map(len, lines))
        last = rp.SequenceNumber(records[-1].sequence_number)
        return rp.RecordBatch(self._shard, records, read_position=last, raw_count=len(lines), raw_bytes=size)


def _place_of(start: rp.StartingPosition, file: Path) -> tuple[int, int]:
    """Return how many lines, and how many bytes, come before a start. Lines arrive when their file is changed.

    A job that starts at LATEST asks by time.
    """
    arrived_later = start.timestamp_ms is not None and file.stat().st_mtime * 1000 >= start.timestamp_ms
    count = None  # all lines of the file
    if start.type is rp.PositionType.AFTER_SEQUENCE_NUMBER:
        count = int(start.sequence_number or 0)
    elif start.type is rp.PositionType.AT_SEQUENCE_NUMBER:  # as `recordpublisher tail --from` gives it
        count = int(start.sequence_number or 1) - 1
    elif start.type is rp.PositionType.TRIM_HORIZON or arrived_later:
        count = 0
    with file.open("rb") as lines:
        sizes = [len(line) for line in islice(lines, count)]
    return len(sizes), sum(sizes)
