"""AsyncKinesisTransfer: moves positions between a job of one stream and a table of async-kinesis, which names no stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_probe import read_oldest_record
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from .async_kinesis_checkpoints import ShardCheckpoint
from .async_kinesis_moves import checkpoints_from_states, ends_without_position, positions_from_checkpoints
from .async_kinesis_table import renewed_checkpoints
from .plans import ExportedRow, ImportedPosition
from .position_transfer import PositionTransfer


@dataclass(frozen=True)
class AsyncKinesisTransfer(PositionTransfer[ShardCheckpoint]):
    """Asks Kinesis whether a shard has records, where async-kinesis has no mark for its end."""

    service: KinesisClient
    rows_are = "rows"

    async def _imported(self, rows: Sequence[ShardCheckpoint], start: StartingPosition) -> list[ImportedPosition]:
        listed, now_ms = await self._list(self._stream), await self._server_time_ms(self._stream)
        return positions_from_checkpoints(rows, listed, stream_name(self._stream), start, now_ms)

    async def _exported(
        self, restored: RestoredState, rows: Sequence[ShardCheckpoint], start: StartingPosition
    ) -> list[ExportedRow[ShardCheckpoint]]:
        listed = await self._list(self._stream)
        asked = ends_without_position(restored, listed, start)
        empty = [shard.key for shard in asked if await self._is_empty(shard)]
        return checkpoints_from_states(restored, listed, start, rows, empty)

    def _renewed(
        self, before: Sequence[ShardCheckpoint], after: Sequence[ShardCheckpoint]
    ) -> Sequence[ShardCheckpoint]:
        return renewed_checkpoints(before, after)

    def _running(self, changed: str) -> str:
        return f"a consumer of async-kinesis is alive: {changed}. Close it first; --force goes on"

    @property
    def _stream(self) -> str:
        if len(self.streams) > 1:
            raise StateError(
                f"{self.table.place} does not name its stream, and the job reads several: {', '.join(self.streams)}. "
                "Move each with a job of its own"
            )
        return self.streams[0]

    async def _is_empty(self, shard: Shard) -> bool:
        oldest = await self._retried(lambda: read_oldest_record(self.service, shard))
        return oldest is not None and oldest.sequence is None
