"""ReshardHandover: an ended shard holds the minimum until the owner of its child has taken the child over (W5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.shards import Shard

from ..coordination.watermark_tracker import WatermarkTracker
from ..shards.shard_table import ShardEntry, ShardStage, ShardTable
from ..watermark_rules import holds_after_end

LISTINGS_WITHOUT_CHILDREN = 2
"""The first whole listing after a shard's end may have begun before it; the second would show a child."""


@dataclass(slots=True)
class _Ended:
    """When a shard ended (monotonic seconds), and how many whole listings have shown no child since."""

    at: float
    listings: int = 0


class ReshardHandover:
    """Owns which ended shards of this subtask others still wait for.

    Between the last record of a parent and the first report of its child's owner nobody would stand for the child: the global watermark
    would run past it and its records would be late. An ended parent that waits for the other parent of a merge does not hold: that
    one stands for the child, and may lie further ahead than the lookahead (W9).
    """

    def __init__(
        self,
        table: ShardTable,
        tracker: WatermarkTracker,
        patience_ms: int,
        clock: Clock,
        changed: Callable[[ShardEntry], None],
        report: Callable[[], object],
    ) -> None:
        self._table = table
        self._tracker = tracker
        self._patience_seconds = patience_ms / 1000
        self._clock = clock
        self._changed = changed
        self._report = report
        self._ended: dict[str, _Ended] = {}

    def begun(self, entries: Iterable[ShardEntry]) -> None:
        """Children among the shards whose reading has begun are taken over; a report that counts them goes first."""
        heirs = [entry.key for entry in entries if entry.shard.parents]
        if heirs:
            self._report()
            self._tracker.announce_started(heirs)

    def ended(self, entry: ShardEntry) -> None:
        """A shard's last record was emitted."""
        self._ended[entry.key] = _Ended(self._clock.monotonic())

    def listed(self, stream: str, shards: Iterable[Shard]) -> None:
        """A whole listing of a stream was taken into the table: it shows every child of the shards that it shows as closed."""
        closed = {shard.key for shard in shards if shard.closed}
        for key, ended in self._ended.items():
            if key in self._table and self._table[key].shard.stream == stream:
                ended.listings += LISTINGS_WITHOUT_CHILDREN if key in closed else 1

    def look(self) -> None:
        """Ask of each: were its children found and taken over, or waited for long enough?"""
        for key, ended in tuple(self._ended.items()):
            if key not in self._table:
                del self._ended[key]
                continue
            entry = self._table[key]
            children = self._children(entry)
            waited = self._clock.monotonic() - ended.at
            if waited >= self._patience_seconds or self._is_settled(entry, children, ended):
                del self._ended[key]
            has_due_child = any(map(self._is_due, children))
            holds = holds_after_end(bool(children), has_due_child, waited, self._patience_seconds)
            self._set(entry, key in self._ended and holds)

    def _set(self, entry: ShardEntry, awaits_child_takeover: bool) -> None:
        if entry.awaits_child_takeover != awaits_child_takeover:
            entry.awaits_child_takeover = awaits_child_takeover
            self._changed(entry)

    def _is_settled(self, entry: ShardEntry, children: list[Shard], ended: _Ended) -> bool:
        """Whether every child was taken over, or there is none: a closed shard would have been listed with its children."""
        if children:
            return all(map(self._is_taken_over, children))
        return entry.shard.closed or ended.listings >= LISTINGS_WITHOUT_CHILDREN

    def _is_due(self, child: Shard) -> bool:
        return self._table.parents_finished(child) and not self._is_taken_over(child)

    def _is_taken_over(self, child: Shard) -> bool:
        if child.key in self._table:
            return self._table[child.key].stage is not ShardStage.WAITING
        return self._tracker.is_started(child.key)

    def _children(self, entry: ShardEntry) -> list[Shard]:
        own, listed = entry.shard, self._table.listed().values()
        return [child for child in listed if child.stream == own.stream and own.shard_id in child.parents]
