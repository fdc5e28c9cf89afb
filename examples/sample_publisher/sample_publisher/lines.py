"""Reads one file: every line is a record, with its line number as sequence number."""

import asyncio
from itertools import islice
from pathlib import Path

import recordpublisher as rp


class LinesPublisher(rp.RecordPublisher):
    """Reads one file. It keeps how many lines the consumer has accepted, and the offset of the next line."""

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
