"""Each mutation takes one rule out of the protocol. A schedule in which nothing breaks then shows that the rule is not tested."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.fetcher.leases import group_observer as observer_module
from recordpublisher.fetcher.leases import shard_listing as listing_module
from recordpublisher.fetcher.leases import worker as worker_module
from recordpublisher.fetcher.leases.cleaning import Cleaning
from recordpublisher.fetcher.leases.documents.group_store import WORKERS, GroupStore, OwnDocument
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.position_part import PositionKey
from recordpublisher.fetcher.leases.group_observer import GroupObserver
from recordpublisher.fetcher.leases.lease_checkpoints import LeaseCheckpoints
from recordpublisher.fetcher.leases.lease_giver import LeaseGiver
from recordpublisher.fetcher.leases.lease_taker import LeaseTaker
from recordpublisher.fetcher.leases.owned_leases import CheckpointScope, LeaseChanges, OwnedLeases
from recordpublisher.fetcher.leases.planning import group_view as view_module
from recordpublisher.fetcher.leases.planning.group_view import GroupView
from recordpublisher.fetcher.leases.planning.group_watermark import WorkerWatermark, group_watermark
from recordpublisher.fetcher.leases.planning.shard_loads import RATE_SECONDS, LoadLevels, LoadRate
from recordpublisher.fetcher.leases.position_store import PartPositionStore
from recordpublisher.fetcher.leases.silence_observer import SilenceObserver
from recordpublisher.fetcher.leases.worker import Worker
from recordpublisher.fetcher.leases.write_permission import SendTime, WritePermission

from .simulated_process import SuspendableClock
from .simulated_readers import SimulatedReaders
from .sink_database import SinkDatabase

Patches = list[tuple[Any, str, Any]]


def write_without_permission() -> Patches:
    """E4: the sink is written to although no heartbeat was confirmed for long."""
    return [(WritePermission, "is_given", property(lambda self: True))]


def permission_counts_from_the_answer() -> Patches:
    """E4: a late answer prolongs the permission."""
    confirm = WritePermission.confirm

    def from_answer(self: WritePermission, sent: SendTime) -> None:
        confirm(self, self.send_time())

    return [(WritePermission, "confirm", from_answer)]


def permission_survives_suspension() -> Patches:
    """E4: a suspension that only the wall clock shows is not noticed."""
    return [(WritePermission, "on_suspension", lambda self: None)]


def sleep_does_not_count() -> Patches:
    """E4: a clock that stands still while the machine sleeps is trusted."""
    return [(SuspendableClock, "boottime", SuspendableClock.monotonic)]


def parts_are_not_sealed() -> Patches:
    """E3: the taker reads the positions of a sealed worker without sealing them."""
    return [(PartPositionStore, "seal", PartPositionStore.read)]


def seal_whatever_the_heartbeat() -> Patches:
    """E3: the seal does not want the heartbeat that was seen."""

    async def seal(self: GroupStore, record: Any) -> Any:
        found = await self._call(self._store.get(f"{WORKERS}{record.document.worker}"))
        if found is None or self._record_of(record.document.worker, found).document.is_sealed:
            raise ConflictError("", "", found)
        current = self._record_of(record.document.worker, found)
        sealed = replace(current.document, is_sealed=True)
        await self.write(f"{WORKERS}{sealed.worker}", sealed.to_bytes(), current.version)
        return sealed

    return [(GroupStore, "seal_record", seal)]


def positions_from_before_the_seal() -> Patches:
    """E3: the record that names the parts is the one that was read before the seal, without parts that were created since."""

    async def seal(self: GroupStore, record: Any) -> Any:
        await self.write(
            f"{WORKERS}{record.document.worker}",
            replace(record.document, is_sealed=True).to_bytes(),
            record.version,
        )
        return replace(record.document, is_sealed=True, parts=0)

    return [(GroupStore, "seal_record", seal)]


def own_silence_counts() -> Patches:
    """E3: time in which the observer was suspended, or had no answer, counts as silence of the others."""
    init = SilenceObserver.__init__

    def without_limit(self: SilenceObserver, max_gap: float) -> None:
        init(self, math.inf)

    return [(SilenceObserver, "__init__", without_limit)]


def own_gap_resets() -> Patches:
    """E3: a gap in the observation resets what was observed before."""
    observe = SilenceObserver.observe

    def resetting(self: SilenceObserver, beats: Any, sent: float, answered: float) -> None:
        if self._answered is not None and sent - self._answered > self._max_gap:
            self._heartbeats.clear()
        observe(self, beats, sent, answered)

    return [(SilenceObserver, "observe", resetting)]


def take_without_preparing() -> Patches:
    """E5: the lease table is written before the taker has stored the positions."""

    async def nothing(self: LeaseCheckpoints) -> None:
        await asyncio.sleep(0)

    return [(LeaseCheckpoints, "store_prepared", nothing)]


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
        return {**self._prepared, **{key: stored for key, stored in self._committed.items() if key in keys}}

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
            self._readers.drop(changes.lost)
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


def cleaned_at_once() -> Patches:
    """E12: a sealed worker that the table does not name is deleted, though a take of it may still land."""

    async def clean(self: Cleaning, view: GroupView) -> None:
        for worker, record in view.records.items():
            if record.is_sealed and worker not in view.table.owners:
                await self._group.delete_worker(worker)

    return [(Cleaning, "clean", clean)]


def deleted_documents_come_back() -> Patches:
    """E1: a worker whose record was deleted writes it anew."""
    write = OwnDocument.write

    async def recreate(self: OwnDocument[Any], document: Any) -> None:
        try:
            await write(self, document)
        except Exception:
            if self._name in self._group._store._shared.values:  # type: ignore[attr-defined]
                raise
            self._version = None
            await write(self, document)

    return [(OwnDocument, "write", recreate)]


def seals_are_not_seen() -> Patches:
    """E1: a worker that was sealed goes on writing."""

    async def write(self: OwnDocument[Any], document: Any) -> None:
        while True:
            try:
                self._version = await self._group.write(self._name, document.to_bytes(), self._version)
            except ConflictError as error:
                self._version = None if error.current is None else error.current.version
            else:
                return

    return [(OwnDocument, "write", write)]


def unnamed_parts() -> Patches:
    """E3: a commit counts although the record does not name its part yet."""
    init = PartPositionStore.__init__

    async def later() -> None:
        await asyncio.sleep(0)

    def without_names(self: PartPositionStore, group: Any, worker: str, shards_per_part: int, name_parts: Any) -> None:
        init(self, group, worker, shards_per_part, later)

    return [(PartPositionStore, "__init__", without_names)]


def members_need_not_be_settled() -> Patches:
    """E6: shards move as soon as a member is seen."""
    return [(GroupObserver, "is_settled", property(lambda self: True))]


def nobody_is_sealed() -> Patches:
    """E3: a dead worker keeps its shards."""

    async def seal_silent(self: GroupObserver, view: GroupView) -> GroupView:
        return view

    return [(GroupObserver, "seal_silent", seal_silent)]


def records_may_be_from_before_the_table() -> Patches:
    """E8: no read of the records is consistent, so an owner's record may be from before it counted what it has."""
    read = GroupStore.read_records

    async def inconsistently(self: GroupStore, *, consistent: bool = False) -> Any:
        return await read(self)

    return [(GroupStore, "read_records", inconsistently)]


def older_records_replace_newer_ones() -> Patches:
    """E8: a read that is older than the one before is believed."""
    return [(observer_module, "_newer", lambda record, known: record)]


def prepared_shards_do_not_count() -> Patches:
    """E8: the taker counts a shard only when it has it."""
    return [(OwnedLeases, "positions_besides", lambda self, read: [])]


def given_shards_do_not_count() -> Patches:
    """E8: the giver does not count a shard any more once it sees that another has it."""
    return [(WorkerWatermark, "keep", lambda self, shard, watermark, now: None)]


def shards_without_owner_do_not_count() -> Patches:
    """E8: nobody stands for a child until it is taken."""
    return [(worker_module, "group_watermark", _group_watermark_without("shards"))]


def sealed_workers_do_not_count() -> Patches:
    """E8: a sealed worker does not hold the watermark, although its shards will be read on from its positions."""
    return [(worker_module, "group_watermark", _group_watermark_without("workers"))]


def joiners_begin_anew() -> Patches:
    """E8: a worker does not go on from the highest value that others know."""

    def own_view_only(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
        records = {name: replace(record, group_watermark=None) for name, record in view.records.items()}
        return group_watermark(replace(view, records=records), None, excluded)

    return [(worker_module, "group_watermark", own_view_only)]


def _group_watermark_without(what: str) -> Any:
    def without(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
        if what == "workers":
            return group_watermark(view, known, frozenset(view.records))
        owned = {shard: lease for shard, lease in view.table.leases.items() if lease.owner is not None}
        return group_watermark(replace(view, table=replace(view.table, leases=owned)), known, excluded)

    return without


def sink_is_not_sealed() -> Patches:
    """E1, E3: the positions in the sink are read without a seal there, while a commit of the sealed worker is under way."""

    def read(self: SinkDatabase, worker: str) -> Any:
        return self.workers[worker].positions if worker in self.workers else {}

    return [(SinkDatabase, "seal", read)]


def deleted_worker_commits() -> Patches:
    """E1: "not sealed" holds for a row that was deleted."""
    commit = SinkDatabase.commit

    def recreating(self: SinkDatabase, worker: str, number: int, positions: Any, before: Any) -> None:
        self.join(worker)
        commit(self, worker, number, positions, before)

    return [(SinkDatabase, "commit", recreating)]


def ancestors_come_back() -> Patches:
    """S2: a listed shard that was read to its end, and left the table, is new."""
    return [(listing_module, "ancestor_keys", lambda shards, listed: set())]


def loads_are_not_stated() -> Patches:
    """E6: shards are shared by number."""
    return [(LoadLevels, "state", lambda self, owned, loads: {})]


def loads_do_not_count() -> Patches:
    """E6: each shard is as heavy as any other to the plan."""
    return [(view_module, "weight", lambda level: 1_000)]


def loads_are_averages() -> Patches:
    """E6: a load is the average since the lease began."""

    def average(self: LoadRate) -> float | None:
        seconds = self._observed - self._began
        return self._bytes / seconds if seconds > RATE_SECONDS else None

    return [(LoadRate, "bytes_per_second", property(average))]


MUTATIONS: dict[str, Callable[[], Patches]] = {
    each.__name__: each
    for each in (
        write_without_permission, permission_counts_from_the_answer, permission_survives_suspension, sleep_does_not_count,
        parts_are_not_sealed, seal_whatever_the_heartbeat, positions_from_before_the_seal, own_silence_counts, own_gap_resets,
        take_without_preparing, prepared_instead_of_released, no_repeated_take, failed_take_is_dropped, released_before_stored,
        stop_does_not_wait_for_the_write, positions_of_an_older_lease, older_positions_after_an_unknown_commit,
        leave_without_stopping, leaving_worker_begins_shards, take_from_live_workers, children_before_parents, answers_decide,
        cleaned_at_once, deleted_documents_come_back, seals_are_not_seen, unnamed_parts, members_need_not_be_settled,
        nobody_is_sealed, records_may_be_from_before_the_table, older_records_replace_newer_ones, prepared_shards_do_not_count,
        given_shards_do_not_count, ancestors_come_back, sink_is_not_sealed, deleted_worker_commits,
        shards_without_owner_do_not_count, sealed_workers_do_not_count, joiners_begin_anew,
        loads_are_not_stated, loads_do_not_count, loads_are_averages,
    )
}  # fmt: skip


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The protocol without one rule."""
    with ExitStack() as stack:
        for owner, attribute, value in MUTATIONS[name]():
            stack.enter_context(patch.object(owner, attribute, value))
        yield
