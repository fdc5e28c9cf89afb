"""Lets a shard hold the watermark after its end until its children have readers (W5)."""

from collections.abc import Callable, Iterable

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.shards import Shard

from ..shards.lineage import parent_keys
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_table import ShardTable
from ..watermark_functions import holds_after_end

MAX_LISTINGS_WITHOUT_CHILDREN = 2
"""After this many listings without a child, an ended shard of a finite source has no children.

The first listing after a shard's end may have begun before it; the second one would show a child.
"""


class _EndedShard(msgspec.Struct):
    """When a shard ended (monotonic seconds), and how many listings have shown no child since then."""

    at: float
    listings: int = 0

    def count_listing(self, *, is_last: bool) -> None:
        """Count a complete listing. `is_last`: no later listing can show a child that this one lacks."""
        self.listings += MAX_LISTINGS_WITHOUT_CHILDREN if is_last else 1


class EndedParentHold:
    """Owns which ended shards of this process still hold the watermark.

    Between the parent's last record and the start of the child's reader, no active shard would keep the global watermark at the child. It
    would rise past the child, whose records would be late. So the parent holds the watermark until its children are known and read.

    - `has_others`: whether a child that is not in the table may be read by another worker, whose lease table holds the watermark for it.

    After a merge, the parent that ended first does not hold the watermark, because the other parent is still open and holds it for the
    child. The first parent may also be further ahead than the lookahead (W9).
    """

    def __init__(
        self,
        table: ShardTable,
        has_others: bool,
        timeout_ms: int,
        clock: Clock,
        is_endless: Callable[[str], bool] = lambda stream: False,
    ) -> None:
        self._table = table
        self._has_others = has_others
        self._timeout_seconds = timeout_ms / 1000
        self._clock = clock
        self._is_endless = is_endless
        self._ended: dict[str, _EndedShard] = {}

    def on_shard_ended(self, entry: ShardEntry) -> None:
        """Register a shard whose last record was emitted."""
        self._ended[entry.key] = _EndedShard(self._clock.monotonic())

    def on_listing(self, stream: str, shards: Iterable[Shard]) -> None:
        """Register a complete listing of a stream that was applied to the table.

        A finite source lists closed shards with their children.
        """
        closed = {shard.key for shard in shards if shard.closed}
        for key, ended in self._ended.items():
            if key in self._table and self._table[key].shard.stream == stream:
                ended.count_listing(is_last=key in closed)

    def update(self) -> None:
        """Decide for every ended shard whether it still holds the watermark."""
        for key in tuple(self._ended):
            self._update(key)

    def update_parents_of_children(self, parent: str) -> None:
        """Decide again for an ended shard, and for the shards that have a child in common with it. Its end concerns no others."""
        children = self._table.children_of(parent)
        for key in {parent}.union(*map(parent_keys, children)) & self._ended.keys():
            self._update(key)

    def _update(self, key: str) -> None:
        if key not in self._table:
            del self._ended[key]
            return
        entry, ended = self._table[key], self._ended[key]
        children = self._table.children_of(key)
        waited_seconds = self._clock.monotonic() - ended.at
        if waited_seconds >= self._timeout_seconds or self._is_complete(entry, children, ended):
            del self._ended[key]
            holds = False
        else:
            has_unread_child = any(map(self._could_be_read_but_is_not, children))
            holds = holds_after_end(bool(children), has_unread_child, waited_seconds, self._timeout_seconds)
        entry.await_children(holds)

    def _is_complete(self, entry: ShardEntry, children: list[Shard], ended: _EndedShard) -> bool:
        """Return whether every child has a reader, or there are no children.

        A closed shard of a finite source would have been listed with its children. An ended shard of Kinesis always has children, even if
        listings do not show them yet.
        """
        if children or self._is_endless(entry.shard.stream):
            return bool(children) and all(map(self._is_started, children))
        return entry.shard.closed or ended.listings >= MAX_LISTINGS_WITHOUT_CHILDREN

    def _could_be_read_but_is_not(self, child: Shard) -> bool:
        return self._table.parents_finished(child) and not self._is_started(child)

    def _is_started(self, child: Shard) -> bool:
        if child.key in self._table:
            return self._table[child.key].stage is not ShardStage.WAITING
        return self._has_others
