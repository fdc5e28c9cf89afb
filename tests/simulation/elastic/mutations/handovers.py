"""Without one of the rules about taking and giving shards (E1, E5, E6, E7, E9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from msgspec import structs

from recordpublisher.fetcher.leases import lease_table
from recordpublisher.fetcher.leases import shard_listing as listing_module
from recordpublisher.fetcher.leases.group_observer import GroupObserver
from recordpublisher.fetcher.leases.group_upkeep import GroupUpkeep
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.lease_transfers import LeaseGiver, LeaseTaker
from recordpublisher.fetcher.leases.owned_leases import CheckpointScope, LeaseChanges, OwnedLeases
from recordpublisher.fetcher.leases.planning import GroupView
from recordpublisher.fetcher.leases.position_commits import PositionCommits
from recordpublisher.fetcher.leases.position_documents import PositionKey
from recordpublisher.fetcher.leases.shard_listing import ShardListing
from recordpublisher.fetcher.leases.worker import Worker

from ..simulated_readers import SimulatedReaders
from .patches import Patches


def take_without_preparing() -> Patches:
    """E5: the lease table is written before the taker has stored the positions."""

    async def nothing(self: PositionCommits) -> None:
        await asyncio.sleep(0)

    return [(PositionCommits, "store_prepared", nothing)]


def prepared_instead_of_released() -> Patches:
    """E5: what is prepared replaces the position that was released, although the take may fail."""
    positions = OwnedLeases.positions_with_prepared

    def instead(self: OwnedLeases) -> Any:
        shards = {key.shard for key in self._prepared}
        found = positions(self)
        return {key: stored for key, stored in found.items() if key in self._prepared or key.shard not in shards}

    return [(OwnedLeases, "positions_with_prepared", instead)]


def no_repeated_take() -> Patches:
    """E5: a take whose answer was lost is not repeated."""
    take = LeaseTaker.take

    async def only_once(self: LeaseTaker, view: GroupView, plan: Any) -> bool:
        if self._owned.prepared_at(view.table.version):
            return False
        return await take(self, view, plan)

    return [(LeaseTaker, "take", only_once)]


def failed_take_is_dropped() -> Patches:
    """E5: what is prepared is dropped when the answer to the take is lost, though the take may still land."""

    from recordpublisher.publishers.errors import StoreUnavailableError

    take = LeaseTaker.take

    async def dropping(self: LeaseTaker, view: GroupView, plan: Any) -> bool:
        try:
            return await take(self, view, plan)
        except StoreUnavailableError:
            self._owned._prepared.clear()
            self._owned._sent_at.clear()
            raise

    return [(LeaseTaker, "take", dropping)]


def released_before_stored() -> Patches:
    """E5: a shard is named as released as soon as it is stopped."""
    return [(OwnedLeases, "released", property(lambda self: {shard: self._epochs[shard] for shard in self._stopped}))]


def stop_does_not_wait_for_the_write() -> Patches:
    """E5: a shard is given up while a write of it is going on."""

    async def stop(self: SimulatedReaders, shards: Any) -> None:
        for shard in shards:
            if shard in self._readers:
                self._readers[shard].is_stopped = True

    return [(SimulatedReaders, "stop", stop)]


def positions_of_an_older_lease() -> Patches:
    """E5: a checkpoint that began before a shard was stopped counts as its last one."""
    positions = OwnedLeases.positions

    def with_late_scope(self: OwnedLeases, scope: CheckpointScope, current: Any) -> Any:
        return positions(self, self.checkpoint_scope(), current)

    return [(OwnedLeases, "positions", with_late_scope)]


def older_positions_after_an_unknown_commit() -> Patches:
    """E1: after a commit whose outcome is unknown, older positions are stored again."""

    def of_committed(self: OwnedLeases) -> Any:
        keys = {PositionKey(shard, epoch) for shard, epoch in self._epochs.items()}
        return {**self._prepared, **{key: stored for key, stored in self._published.items() if key in keys}}

    return [(OwnedLeases, "positions_with_prepared", of_committed)]


def leave_without_stopping() -> Patches:
    """E5: a worker that leaves takes a checkpoint and goes on reading until it is sealed."""

    async def give_once(self: LeaseGiver) -> None:
        await self._take_checkpoint()

    return [(LeaseGiver, "give_once", give_once)]


def leaving_worker_begins_shards() -> Patches:
    """E5: a worker that leaves reads shards whose take lands late."""

    def apply_table(self: Worker) -> None:
        if (table := self._cache.table) is not None:
            changes = self._owned.apply(table)
            self._readers.drop(changes.revoked)
            for shard, stored in changes.begun.items():
                self._readers.begin(shard, stored.state)

    return [(Worker, "_apply_table", apply_table)]


def take_from_live_workers() -> Patches:
    """E5: a planned shard is taken although its owner lives and reads it."""

    def is_free(self: GroupView, shard: str) -> bool:
        return self.table.can_be_read(shard)

    return [(GroupView, "is_free", is_free)]


def children_before_parents() -> Patches:
    """E7: a child is read although a parent has not ended."""
    return [(LeaseTable, "can_be_read", lambda self, shard: not self.leases[shard].ended)]


def answers_decide() -> Patches:
    """E9: a take counts only if its answer arrived; the table is not looked at for it."""
    apply = OwnedLeases.apply

    def without_begin(self: OwnedLeases, table: LeaseTable) -> LeaseChanges:
        mine = {key: stored for key, stored in self._prepared.items() if self._sent_at[key] + 1 < table.version}
        for key in mine:
            del self._prepared[key], self._sent_at[key]
        owner = self._worker
        kept = {
            shard: lease
            for shard, lease in table.leases.items()
            if lease.owner != owner or PositionKey(shard, lease.epoch) not in mine
        }
        return apply(self, replace(table, leases=kept))

    return [(OwnedLeases, "apply", without_begin)]


def members_need_not_be_settled() -> Patches:
    """E6: shards move as soon as a member is seen."""
    return [(GroupObserver, "is_settled", property(lambda self: True))]


def ancestors_come_back() -> Patches:
    """S2: a listed shard that was read to its end, and left the table, is new."""
    return [(listing_module, "finished_ancestors", lambda begun, listed: set())]


def ends_need_children() -> Patches:
    """E7: the end of a shard counts only if it names its children."""
    ends = OwnedLeases.ends

    def named(self: OwnedLeases) -> Any:
        return {shard: end for shard, end in ends.fget(self).items() if end.children}  # type: ignore[misc]

    return [(OwnedLeases, "ends", property(named))]


def parents_may_be_missing() -> Patches:
    """S2: a listing that lacks the parent of a listed shard adds what it shows."""
    changes = ShardListing._changes

    async def without_parents(self: ShardListing, table: LeaseTable) -> Any:
        known = {**table.leases}
        listed = list(await self._list_shards())
        keys = {shard.key for shard in listed} | known.keys()
        cut = [replace(each, parents=tuple(p for p in each.parents if f"{each.stream}/{p}" in keys)) for each in listed]

        async def list_shards() -> Any:
            return cut

        with patch.object(self, "_list_shards", list_shards):
            return await changes(self, table)

    return [(ShardListing, "_changes", without_parents)]


def known_children_are_all() -> Patches:
    """E7: a shard that ended goes although a child waits for it that the listing at its end did not show."""

    def without_followed(leases: Any) -> dict[str, Lease]:
        def is_followed(lease: Lease) -> bool:
            return bool(lease.children) and all(
                child not in leases or leases[child].was_owned for child in lease.children
            )

        return {shard: lease for shard, lease in leases.items() if not (lease.ended and is_followed(lease))}

    return [(lease_table, "_without_followed", without_followed)]


def leases_survive_their_stream() -> Patches:
    """E12: the leases of a stream that was deleted stay, and a later stream of its name is read from their positions."""

    async def nothing(self: GroupUpkeep) -> bool:
        return False

    return [(GroupUpkeep, "remove_deleted", nothing)]


def deleted_streams_stay_deleted() -> Patches:
    """E12: a worker that has found a stream deleted removes the leases of each later stream of its name."""
    return [(GroupUpkeep, "forget_deleted", lambda self, kept: None)]


def nobody_looks_for_streams_that_nobody_reads() -> Patches:
    """E12: leases stay of a stream that was deleted when all its shards had ended: no reader finds out."""
    return [(ShardListing, "_of_deleted_streams", lambda self, table: ())]


def children_forget_their_parents() -> Patches:
    """S5: a child that nobody has read does not know until when its parents were seen."""
    initial_state = LeaseTable.initial_state

    def without_parents(self: LeaseTable, shard: str) -> Any:
        ends = {key: structs.replace(lease, seen_ms=None) for key, lease in self.leases.items()}
        return initial_state(replace(self, leases=ends), shard)

    return [(LeaseTable, "initial_state", without_parents)]


def ends_are_stored_without_a_time() -> Patches:
    """S5: the end of a shard does not say until when the shard was open."""
    ends = OwnedLeases.ends

    def without_time(self: OwnedLeases) -> Any:
        return {shard: replace(end, seen_ms=None) for shard, end in ends.fget(self).items()}  # type: ignore[misc]

    return [(OwnedLeases, "ends", property(without_time))]


def listed_shards_were_never_seen() -> Patches:
    """S5: a shard that is listed when its parents have left the table does not know that it was there then."""
    return [(ShardListing, "_seen_now", lambda self, lease: lease)]


def start_is_pinned_again() -> Patches:
    """P3, S5: each process that starts replaces the group's start by its own time for LATEST."""
    add = GroupUpkeep.add_listed_shards

    async def pinning(self: GroupUpkeep, view: GroupView) -> bool:
        if (table := view.table).start.timestamp_ms != (own := self._listing._start).timestamp_ms:
            await self._cache.replace(replace(table, version=table.version + 1, writer=self._worker, start=own))
            return True
        return await add(self, view)

    return [(GroupUpkeep, "add_listed_shards", pinning)]


def nobody_knows_that_it_was_latest() -> Patches:
    """P3, S5: a group's start does not say that it is the time that LATEST stood for."""
    initial_state = LeaseTable.initial_state

    def by_time(self: LeaseTable, shard: str) -> Any:
        return initial_state(replace(self, is_latest=False), shard)

    return [(LeaseTable, "initial_state", by_time)]


HANDOVERS = [
    take_without_preparing,
    prepared_instead_of_released,
    no_repeated_take,
    failed_take_is_dropped,
    released_before_stored,
    stop_does_not_wait_for_the_write,
    positions_of_an_older_lease,
    older_positions_after_an_unknown_commit,
    leave_without_stopping,
    leaving_worker_begins_shards,
    take_from_live_workers,
    children_before_parents,
    answers_decide,
    members_need_not_be_settled,
    ancestors_come_back,
    ends_need_children,
    parents_may_be_missing,
    known_children_are_all,
    leases_survive_their_stream,
    deleted_streams_stay_deleted,
    nobody_looks_for_streams_that_nobody_reads,
    children_forget_their_parents,
    ends_are_stored_without_a_time,
    listed_shards_were_never_seen,
    start_is_pinned_again,
    nobody_knows_that_it_was_latest,
]
