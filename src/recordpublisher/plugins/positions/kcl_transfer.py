"""KclTransfer: moves positions between a job and a lease table of the KCL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.stream_arns import stream_name

from .kcl_export import leases_from_states
from .kcl_import import leases_by_stream, positions_from_leases
from .kcl_lease_table import renewed_leases
from .kcl_leases import KclLease
from .plans import ExportedRow, ImportedPosition
from .position_transfer import PositionTransfer


@dataclass(frozen=True)
class KclTransfer(PositionTransfer[KclLease]):
    """A lease table may hold several streams."""

    rows_are = "leases"

    async def _imported(self, rows: Sequence[KclLease], start: StartingPosition) -> list[ImportedPosition]:
        by_stream = leases_by_stream(rows, [*map(stream_name, self.streams)], self.table.place)
        found: list[ImportedPosition] = []
        for given in self.streams:
            stream = stream_name(given)
            listed, now_ms = await self._list(given), await self._server_time_ms(given)
            found += positions_from_leases(by_stream[stream], listed, stream, start, now_ms)
        return found

    async def _exported(
        self, restored: RestoredState, rows: Sequence[KclLease], start: StartingPosition
    ) -> list[ExportedRow[KclLease]]:
        listed = [shard for given in self.streams for shard in await self._list(given)]
        return leases_from_states(restored, listed, start, rows, [*map(stream_name, self.streams)])

    def _renewed(self, before: Sequence[KclLease], after: Sequence[KclLease]) -> Sequence[KclLease]:
        return renewed_leases(before, after)

    def _running(self, changed: str) -> str:
        return f"a worker of the KCL is alive: {changed}. Stop it first; --force goes on"
