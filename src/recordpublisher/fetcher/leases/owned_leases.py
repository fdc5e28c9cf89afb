"""Keeps the leases of one worker: which shards it reads, stops and releases, and which positions it must store for them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.safe_text import counted, few_of

from ..sink import RevocationReason
from .lease_table import LeaseTable, ShardEnd
from .position_documents import PositionKey, Positions, StoredPosition
from .position_store import CheckpointPositions

log = logging.getLogger("recordpublisher.group")


class OwnedLeases:
    """Keeps the epoch of each lease of this worker, the shards that it has stopped reading, and the positions that it must store.

    A worker *prepares* a shard before it acquires the shard: it stores the shard's position among its own. It may release a shard and at
    the same time prepare it again, so positions are kept by shard and epoch.
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
        """Every shard whose lease this worker holds, including shards that it has stopped or that ended."""
        return self._epochs.keys()

    @property
    def reading(self) -> set[str]:
        """The shards that the worker has not stopped, and whose end it has not stored."""
        return {shard for shard in self._epochs if shard not in self._stopped and not self._has_ended(shard)}

    @property
    def released(self) -> dict[str, int]:
        """The epoch of each stopped shard that other workers may acquire: its last position is stored, and its rows are visible."""
        keys = {shard: PositionKey(shard, self._epochs[shard]) for shard in self._stopped}
        stored = self._published
        return {
            shard: key.epoch
            for shard, key in keys.items()
            if self._stopped[shard] is not None and stored.get(key) == self._stopped[shard]
        }

    @property
    def unfinished(self) -> set[str]:
        """The stopped shards of which the sink still had records to finish at the last checkpoint."""
        return self._unfinished & self._stopped.keys()

    @property
    def ends(self) -> dict[str, ShardEnd]:
        """The ended shards whose end is stored and whose rows are visible, so that their children may be read."""
        found = {shard: self._published.get(PositionKey(shard, epoch)) for shard, epoch in self._epochs.items()}
        return {
            shard: ShardEnd(stored.state.watermark, stored.children, stored.state.seen_ms)
            for shard, stored in found.items()
            if stored is not None and stored.state.ended
        }

    # --- positions -----------------------------------------------------------------------------------------------------------

    def checkpoint_scope(self) -> CheckpointScope:
        """Return the leases that a checkpoint covers. Call this before the positions of the checkpoint are read."""
        return CheckpointScope(dict(self._epochs), set(self._stopped))

    def positions(self, scope: CheckpointScope, current: CheckpointPositions) -> Positions:
        """Return the positions that a checkpoint stores: current ones for the leases in `scope`, and the last known ones for all others."""
        found = self.positions_with_prepared()
        self._unfinished = self.covered(scope, current.unfinished) & set(scope.stopped)
        for shard in self.covered(scope, current.stored):
            found[PositionKey(shard, self._epochs[shard])] = current.stored[shard]
            if shard in scope.stopped and shard not in self._unfinished:
                self._stopped[shard] = current.stored[shard]
        return found

    def covered(self, scope: CheckpointScope, current: Collection[str]) -> set[str]:
        """Return the shards in `current` whose lease has not changed since the checkpoint began."""
        return {shard for shard, epoch in self._epochs.items() if shard in current and scope.epochs.get(shard) == epoch}

    def positions_with_prepared(self) -> dict[PositionKey, StoredPosition]:
        """Return the positions of the last commit, and those of shards that this worker is about to acquire (prepared shards).

        Storing these does not move the position of any shard that is read. Older positions must not be stored, because the last commit may
        have taken effect even without an answer.
        """
        keys = {PositionKey(shard, epoch) for shard, epoch in self._epochs.items()}
        return {**self._prepared, **{key: stored for key, stored in self._latest.items() if key in keys}}

    def positions_besides(self, read: Collection[str]) -> list[StoredPosition]:
        """Return the positions of shards that this worker is about to acquire, and of shards that it owns and that are not in `read`.

        An owned shard is not read if this worker was already leaving when the table made it the owner.
        """
        return [
            stored
            for key, stored in self.positions_with_prepared().items()
            if key in self._prepared or key.shard not in read
        ]

    def on_commit(self, positions: Positions) -> None:
        """Keep these positions as the positions of the last commit, because their write begins now."""
        self._latest = positions

    def on_published(self, positions: Positions) -> None:
        """Note that these positions of a checkpoint are stored, and that all rows before them are visible.

        Only then this worker releases a shard, or writes a shard's end into the lease table.
        """
        # If a commit has to be undone (`CommittingSink.take_back`), no other worker has continued from its positions.
        self._published = positions

    # --- changes -------------------------------------------------------------------------------------------------------------

    def leases_of(self, shards: Collection[str]) -> dict[str, int]:
        """Return the epoch of each of these shards that this worker holds."""
        return {shard: self._epochs[shard] for shard in shards if shard in self._epochs}

    def stop(self, leases: Mapping[str, int]) -> None:
        """Mark these shards as no longer read. The next checkpoint stores their last positions.

        `leases`: the epoch of each shard when its reader was stopped. Shards whose lease was lost in the meantime are ignored.
        """
        for shard, _ in leases.items() & self._epochs.items():
            self._stopped.setdefault(shard, None)

    def prepare_take(self, shard: str, version: int, stored: StoredPosition, *, had_owner: bool = False) -> None:
        """Keep the position of a shard that this worker is about to acquire, so that the next commit stores it.

        - `version`: the version of the lease table that the worker will replace to acquire the shard.
        - `had_owner`: whether another worker has held the shard.
        """
        key = PositionKey(shard, version + 1)
        if had_owner:
            self._taken_over.add(key)
        self._prepared[key] = stored
        self._sent_at[key] = version

    def prepared_at(self, version: int) -> dict[str, int]:
        """Return the epoch of each shard that this worker is about to acquire by replacing this version of the lease table."""
        return {key.shard: key.epoch for key, sent_at in self._sent_at.items() if sent_at == version}

    def on_take(self, taken: Mapping[str, int], version: int) -> None:
        """Note that a write was sent that replaces `version` of the lease table and acquires the shards in `taken`."""
        for shard, epoch in taken.items():
            self._sent_at[PositionKey(shard, epoch)] = version

    def apply(self, table: LeaseTable) -> LeaseChanges:
        """Adopt the leases in the table, even if answers to earlier writes differ from it. Return what changes for this worker.

        Raises: ImpossibleStateError if the table gives this worker a shard that it has not tried to acquire.
        """
        revoked = self._revoked(table)
        for shard in revoked:
            del self._epochs[shard]
            self._stopped.pop(shard, None)
        # A position that was stored in advance is dropped only when a later version of the table shows the outcome of the write.
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
                raise ImpossibleStateError(
                    f"the lease table gives {self._worker} the shard {shard} since version {lease.epoch}, but this "
                    "worker has not asked for it"
                )
        return LeaseChanges(begun, revoked, taken_over)

    def _revoked(self, table: LeaseTable) -> dict[str, RevocationReason]:
        ends, released = self.ends.keys(), self.released.keys()

        def reason_of(shard: str) -> RevocationReason:
            lease = table.leases.get(shard)
            if shard in ends or (lease is not None and lease.ended):
                return RevocationReason.ENDED
            if lease is None and table.alone is None:
                return RevocationReason.DELETED
            return RevocationReason.GIVEN if shard in released else RevocationReason.LOST

        kept = {shard for shard, epoch in self._epochs.items() if table.is_owned(shard, self._worker, epoch)}
        return {shard: reason_of(shard) for shard in self._epochs.keys() - kept}

    def _has_ended(self, shard: str) -> bool:
        stored = self._published.get(PositionKey(shard, self._epochs[shard]))
        return stored is not None and stored.state.ended


@dataclass(frozen=True, slots=True)
class CheckpointScope:
    """The leases when a checkpoint began, and the shards that this worker no longer reads and has not released yet.

    This is a copy, because both may change in the worker while the sink is flushed.
    """

    epochs: Mapping[str, int]
    stopped: Collection[str]


@dataclass(frozen=True, slots=True)
class LeaseChanges:
    """The changes that a new version of the lease table brings for this worker.

    - `begun`: shards that the worker begins to read, with their positions.
    - `revoked`: shards that the worker no longer holds, with the reasons.
    - `taken_over`: shards in `begun` that another worker has held.
    """

    begun: Mapping[str, StoredPosition]
    revoked: Mapping[str, RevocationReason]
    taken_over: Collection[str] = ()

    def revoked_for(self, reason: RevocationReason) -> list[str]:
        """Return the shards that the worker no longer holds for this reason."""
        return [shard for shard, each in self.revoked.items() if each is reason]


def log_moved(worker: str, what: str, shards: Collection[str]) -> None:
    """Log in one line which shards a new version of the lease table moves to or from this worker. `what`: the verb for that line."""
    if shards:
        log.info("worker %s %s %s: %s", worker, what, counted(len(shards), "shard"), few_of(sorted(shards)))
