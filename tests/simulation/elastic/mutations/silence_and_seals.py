"""Without one of the rules about silence, seals, permissions and what sealed workers leave (E1, E3, E4, E12)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from recordpublisher.fetcher.checkpoints.staged_commits import Commits
from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.fetcher.elastic.positions_with_rows import PositionsWithRows
from recordpublisher.fetcher.leases import worker as worker_module
from recordpublisher.fetcher.leases.group_observer import GroupObserver
from recordpublisher.fetcher.leases.group_store import WORKERS, GroupStore, OwnDocument
from recordpublisher.fetcher.leases.group_upkeep import GroupUpkeep
from recordpublisher.fetcher.leases.heartbeat import SentAt, SilenceObserver, WritePermission
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.lease_transfers import LeaseTaker
from recordpublisher.fetcher.leases.planning import GroupView
from recordpublisher.fetcher.leases.position_store import PartPositionStore
from recordpublisher.publishers.errors import FencedError

from ..simulated_process import SuspendableClock
from .patches import Patches


def write_without_permission() -> Patches:
    """E4: the sink is written to although no heartbeat was confirmed for long."""
    return [(WritePermission, "is_given", property(lambda self: True))]


def permission_counts_from_the_answer() -> Patches:
    """E4: a late answer prolongs the permission."""
    confirm = WritePermission.confirm

    def from_answer(self: WritePermission, sent: SentAt) -> None:
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


def nobody_is_sealed() -> Patches:
    """E3: a dead worker keeps its shards."""

    async def seal_silent(observer: GroupObserver, view: GroupView) -> GroupView:
        return view

    return [(worker_module, "seal_silent", seal_silent)]


def cleaned_at_once() -> Patches:
    """E12: a sealed worker that the table does not name is deleted, though a take of it may still land."""

    async def clean(self: GroupUpkeep, view: GroupView) -> None:
        for worker, record in view.records.items():
            if record.is_sealed and worker not in view.table.owners:
                await self._group.delete_worker(worker)

    return [(GroupUpkeep, "clean", clean)]


def sealed_worker_follows_faster_takes() -> Patches:
    """E12: a take follows later versions of the table, although its worker may have been sealed and deleted meanwhile."""

    write = LeaseTaker._write

    async def without_heartbeats(self: LeaseTaker, before: LeaseTable, ended: Any) -> None:
        async def nothing() -> None:
            await asyncio.sleep(0)

        with patch.object(self, "_heartbeat", SimpleNamespace(write=nothing)):
            await write(self, before, ended)

    return [(LeaseTaker, "_write", without_heartbeats)]


def late_joins_count() -> Patches:
    """E12: a worker goes on under a name whose record may have been sealed and deleted before it was told that it was stored."""

    async def join_group(write_first: Callable[[], Awaitable[None]], *others: Any) -> None:
        await write_first()

    return [(worker_module, "join_group", join_group)]


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


def sink_is_not_sealed() -> Patches:
    """E1, E3: the positions in the sink are read without a seal there, while a commit of the sealed worker is under way."""

    async def read(self: PositionsWithRows, record: Any) -> Any:
        return await self.read(record)

    return [(PositionsWithRows, "seal", read)]


def deleted_worker_commits() -> Patches:
    """E1: "not sealed" holds for an entry that was deleted."""
    decide = Commits._decide

    async def recreating(self: Commits, write: Any) -> None:
        try:
            await decide(self, write)
        except FencedError as error:
            if not isinstance(error.__cause__, ConflictError) or error.__cause__.current is not None:
                raise
            self._version = None
            await decide(self, write)

    return [(Commits, "_decide", recreating)]


SILENCE_AND_SEALS = [
    write_without_permission,
    permission_counts_from_the_answer,
    permission_survives_suspension,
    sleep_does_not_count,
    parts_are_not_sealed,
    seal_whatever_the_heartbeat,
    positions_from_before_the_seal,
    own_silence_counts,
    own_gap_resets,
    nobody_is_sealed,
    cleaned_at_once,
    sealed_worker_follows_faster_takes,
    late_joins_count,
    deleted_documents_come_back,
    seals_are_not_seen,
    unnamed_parts,
    sink_is_not_sealed,
    deleted_worker_commits,
]
