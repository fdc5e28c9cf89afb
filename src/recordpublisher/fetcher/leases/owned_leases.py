"""OwnedLeases: what one life of a worker does with each of its shards, and which positions it must store for them."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.log_fields import counted

from .documents.lease_table import LeaseTable, ShardEnd
from .documents.position_part import PositionKey, Positions, StoredPosition
from .shard_readers import ReadPositions

log = logging.getLogger("recordpublisher.group")
MAX_NAMED = 5
"""Shards that one line of the log names."""


@dataclass(frozen=True, slots=True)
class CheckpointScope:
    """What a checkpoint is about: the leases and stopped shards at its beginning. Both may change while the sink is flushed."""

    epochs: Mapping[str, int]
    stopped: Collection[str]


@dataclass(frozen=True, slots=True)
class LeaseChanges:
    """What a new version of the lease table means for this worker: shards that begin, and shards that it has no more.

    `taken_over`: those that begin and that another worker has had.
    """

    begun: Mapping[str, StoredPosition]
    lost: Collection[str]
    taken_over: Collection[str] = ()


def log_moved(worker: str, what: str, shards: Collection[str]) -> None:
    """One line for what one version of the lease table moves."""
    if shards:
        named = ", ".join(sorted(shards)[:MAX_NAMED])
        more = f" and {len(shards) - MAX_NAMED} more" if len(shards) > MAX_NAMED else ""
        log.info("worker %s %s %s: %s%s", worker, what, counted(len(shards), "shard"), named, more)


class OwnedLeases:
    """Owns the epoch of each lease of this worker, which shards it has stopped reading, and what it has prepared.

    A shard may be released and prepared at the same time: the worker takes back what it gave up. So positions are kept by shard and epoch,
    beside each other and never instead of each other (E5).
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._epochs: dict[str, int] = {}
        self._stopped: dict[str, StoredPosition | None] = {}
        self._prepared: dict[PositionKey, StoredPosition] = {}
        self._sent_at: dict[PositionKey, int] = {}
        self._taken_over: set[PositionKey] = set()
        self._published: Positions = {}
        self._latest: Positions = {}
        self._unfinished: set[str] = set()

    # --- what it has ---------------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> Collection[str]:
        """Every shard whose lease it has, also those that it has stopped or that ended."""
        return self._epochs.keys()

    @property
    def reading(self) -> set[str]:
        """The shards that it has neither stopped nor read to their end, for certain."""
        return {shard for shard in self._epochs if shard not in self._stopped and not self._has_ended(shard)}

    @property
    def released(self) -> dict[str, int]:
        """The epoch of each stopped shard whose last position is stored, with its rows published."""
        keys = {shard: PositionKey(shard, self._epochs[shard]) for shard in self._stopped}
        stored = self._published
        return {
            shard: key.epoch
            for shard, key in keys.items()
            if self._stopped[shard] is not None and stored.get(key) == self._stopped[shard]
        }

    @property
    def unfinished(self) -> set[str]:
        """The stopped shards of which the sink had more to do at the last checkpoint."""
        return self._unfinished & self._stopped.keys()

    @property
    def ends(self) -> dict[str, ShardEnd]:
        """The shards whose end is stored, with their rows published."""
        found = {shard: self._published.get(PositionKey(shard, epoch)) for shard, epoch in self._epochs.items()}
        return {
            shard: ShardEnd(stored.state.watermark, stored.children, stored.state.seen_ms)
            for shard, stored in found.items()
            if stored is not None and stored.state.ended
        }

    # --- positions -----------------------------------------------------------------------------------------------------------

    def checkpoint_scope(self) -> CheckpointScope:
        """To be called before the positions of a checkpoint are read."""
        return CheckpointScope(dict(self._epochs), set(self._stopped))

    def positions(self, scope: CheckpointScope, current: ReadPositions) -> Positions:
        """What a checkpoint stores: the current positions of the leases in its scope, what is stored of others, and what is prepared."""
        found = self.positions_with_prepared()
        self._unfinished = self.covered(scope, current.unfinished) & set(scope.stopped)
        for shard in self.covered(scope, current.stored):
            found[PositionKey(shard, self._epochs[shard])] = current.stored[shard]
            if shard in scope.stopped and shard not in self._unfinished:
                self._stopped[shard] = current.stored[shard]
        return found

    def covered(self, scope: CheckpointScope, current: Collection[str]) -> set[str]:
        """The shards that the checkpoint is about: their leases are those of its beginning."""
        return {shard for shard, epoch in self._epochs.items() if shard in current and scope.epochs.get(shard) == epoch}

    def positions_with_prepared(self) -> dict[PositionKey, StoredPosition]:
        """What may be stored already, and what is prepared: a commit that adds nothing of the shards that are read.

        A commit whose outcome is unknown may have taken effect: nothing older is stored after it.
        """
        keys = {PositionKey(shard, epoch) for shard, epoch in self._epochs.items()}
        return {**self._prepared, **{key: stored for key, stored in self._latest.items() if key in keys}}

    def positions_besides(self, read: Collection[str]) -> list[StoredPosition]:
        """Of shards that are prepared, or owned and not read: those whose take landed while the worker was leaving."""
        return [
            stored
            for key, stored in self.positions_with_prepared().items()
            if key in self._prepared or key.shard not in read
        ]

    def on_commit(self, positions: Positions) -> None:
        """These positions are being stored."""
        self._latest = positions

    def on_published(self, positions: Positions) -> None:
        """Note that these positions of a checkpoint are stored, and that all rows before them are visible.

        Only then a shard is released, or its end written: a commit that is taken back has rows of shards of its own worker only.
        """
        self._published = positions

    # --- changes -------------------------------------------------------------------------------------------------------------

    def leases_of(self, shards: Collection[str]) -> dict[str, int]:
        """The epoch of each of these shards that it has."""
        return {shard: self._epochs[shard] for shard in shards if shard in self._epochs}

    def stop(self, leases: Mapping[str, int]) -> None:
        """Under these leases the shards are not read any more: the next checkpoint has their last positions.

        Leases that were lost while the readers stopped are left out.
        """
        for shard, _ in leases.items() & self._epochs.items():
            self._stopped.setdefault(shard, None)

    def prepare(self, shard: str, version: int, stored: StoredPosition, *, had_owner: bool = False) -> None:
        """The shard is about to be taken, by a write that replaces this version of the table. `had_owner`: from another worker."""
        key = PositionKey(shard, version + 1)
        if had_owner:
            self._taken_over.add(key)
        self._prepared[key] = stored
        self._sent_at[key] = version

    def prepared_at(self, version: int) -> dict[str, int]:
        """The shards whose take replaces this version of the table, and the epoch of each."""
        return {key.shard: key.epoch for key, sent_at in self._sent_at.items() if sent_at == version}

    def on_take(self, taken: Mapping[str, int], version: int) -> None:
        """The take of these shards is sent, to replace this version of the table."""
        for shard, epoch in taken.items():
            self._sent_at[PositionKey(shard, epoch)] = version

    def apply(self, table: LeaseTable) -> LeaseChanges:
        """What the table says is so, whatever an answer said or did not say (E9). Raises: ImpossibleStateError."""
        lost = {shard for shard, epoch in self._epochs.items() if not table.is_owned(shard, self._worker, epoch)}
        for shard in lost:
            del self._epochs[shard]
            self._stopped.pop(shard, None)
        settled = [key for key, sent_at in self._sent_at.items() if sent_at < table.version]
        begun = {
            key.shard: self._prepared[key] for key in settled if table.is_owned(key.shard, self._worker, key.epoch)
        }
        for key in settled:
            if table.is_owned(key.shard, self._worker, key.epoch):
                self._epochs[key.shard] = key.epoch
            del self._prepared[key], self._sent_at[key]
        taken_over = begun.keys() & {key.shard for key in self._taken_over.intersection(settled)}
        self._taken_over -= set(settled)
        for shard, lease in table.leases.items():
            if lease.owner == self._worker and self._epochs.get(shard) != lease.epoch:
                raise ImpossibleStateError(f"{self._worker} has {shard} since {lease.epoch} and did not prepare it")
        return LeaseChanges(begun, lost, taken_over)

    def _has_ended(self, shard: str) -> bool:
        stored = self._published.get(PositionKey(shard, self._epochs[shard]))
        return stored is not None and stored.state.ended
