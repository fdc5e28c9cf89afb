"""One worker of a group, from joining to leaving: it sends heartbeats, reads the group's documents, and acquires and releases shards."""

import asyncio
import contextlib
import functools
import logging
import os
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from recordpublisher.publishers.clock import Clock, wait_at_most
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError, StateError, StoreUnavailableError

from ..checkpoints.commits import CheckpointAge
from .group_observer import GroupObserver, GroupUpkeep
from .group_store import (
    HOST,
    MAX_ATTEMPTS,
    GroupStore,
    PositionKey,
    Positions,
    StoredPosition,
    TableCache,
    WorkerRecord,
)
from .heartbeat import Heartbeat, WritePermission, join_group
from .json_documents import by_stream
from .lease_counts import LeaseCounts
from .lease_settings import HANDOVER_SECONDS, HELD_SECONDS, LEAVING_SECONDS, RETRY_SECONDS, LeaseSettings
from .lease_table import AloneOwner, GroupJob, LeaseTable, ShardEnd
from .owned_leases import OwnedLeases, PositionCommits, as_group, log_moved, sealed_alone
from .planning import GroupView, LoadLevels, ShardWatermark, WorkerWatermark, group_watermark, highest_watermark
from .position_store import PartPositionStore, PositionStore, ShardReaders
from .shard_listing import ShardListing

log = logging.getLogger("recordpublisher.group")
SHORTEST_SECONDS = 0.001
"""A shorter remaining wait counts as over, because a timer may fire early by the resolution of its clock (seconds)."""
T = TypeVar("T")


class Worker:
    """Takes part in a group under one name: decides when to send heartbeats, read the group's documents, and acquire or release shards.

    - `name`: random, and never used again.
    - `on_drain`: called when a person has asked this worker to leave. Without it the worker leaves.
    - `on_sink_error`: called with an error of the sink while shards are released. The worker stays in the group until `leave`, which
      may then store what the sink has finished. Without it `run` raises the error.
    - `job`: the job of this process. None is compatible with every job (E10).
    - `is_first`: whether its process was not in the group before. Only then may it replace a worker that runs alone.
    - `on_advance`: called when the watermark of the group, as this worker knows it, has changed.
    """

    def __init__(
        self,
        name: str,
        group: GroupStore,
        readers: ShardReaders,
        listing: ShardListing,
        settings: LeaseSettings,
        clock: Clock,
        *,
        positions: PositionStore | None = None,
        jitter: random.Random | None = None,
        counts: LeaseCounts | None = None,
        on_drain: Callable[[], None] | None = None,
        on_sink_error: Callable[[Exception], None] | None = None,
        job: GroupJob | None = None,
        times: CheckpointAge | None = None,
        is_first: bool = True,
        on_advance: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._group = group
        self._is_first = is_first
        self._on_advance = on_advance
        self._counts = counts or LeaseCounts()
        self._on_drain = on_drain or self.leave
        self.permission = WritePermission(clock, settings.write_seconds)
        self._readers = readers
        self._settings = settings
        self._clock = clock
        self._random = jitter or random.Random()  # noqa: S311 - jitter
        self._owned = OwnedLeases(name)
        self._checkpoint_ms: int | None = None
        self._loads = LoadLevels()
        self._cache = TableCache(group, clock, job)
        self._heartbeat = Heartbeat(group, name, self._describe, self.permission)
        self._positions = positions or PartPositionStore(group, name, settings.shards_per_part, self._heartbeat.write)
        self._commits = PositionCommits(self._owned, readers, self._positions, times or CheckpointAge(clock))
        self._observer = GroupObserver(group, self._cache, clock, name, settings)
        self._taker = LeaseTaker(
            name,
            self._cache,
            self._owned,
            self._positions,
            self._commits,
            self._heartbeat,
            self._loads,
            clock,
            settings,
        )
        self._listing = listing
        self._upkeep = GroupUpkeep(name, group, self._cache, self._positions, listing)
        self._watermark = WorkerWatermark(2 * settings.interval)
        self.group_watermark: int | None = None
        """The highest watermark of the group that this worker knows (E8)."""
        self.group_maximum: int | None = None
        """The highest watermark of any shard of the group, at the last read of its documents (W12)."""
        self._giver = LeaseGiver(
            self._owned,
            readers,
            self._heartbeat,
            functools.partial(self.checkpoint, may_be_partial=True),
            on_sink_error,
        )
        self._stated = ShardWatermark(None)
        self._held_until = 0.0
        self._others_are_held = False
        self._look_now = asyncio.Event()
        self._has_joined = False

    async def run(self) -> None:
        """Take part in the group, and return after `leave`.

        Raises: FencedError if other workers have sealed this one (declared it dead); LateJoinError if they may have done so before it
        joined; StateError if stored documents cannot be used.
        """
        first = functools.partial(self._retry, self._join)
        await join_group(first, self._heartbeat, self._clock, self._settings.duration)
        self._has_joined = True
        tasks = [
            asyncio.ensure_future(work)
            for work in (self._send_heartbeats(), self._watch_group(), self._giver.run(self._retry))
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # Suppressed because the record is then sealed already: by another worker, or by an earlier attempt without an answer.
        with contextlib.suppress(FencedError):
            await self._retry(self._heartbeat.seal)

    async def announce(self) -> bool:
        """Announce that this worker will leave. Return whether there are other workers that can acquire its shards.

        From now on no plan gives this worker a shard, and the others read the group's documents often. This worker continues to read its
        shards until `leave`.
        """
        if not self._owned.shards or not self.has_others:
            return False
        self._giver.announce()
        try:
            await self._heartbeat.write()
        except (FencedError, StoreUnavailableError):
            return False
        self._look_now.set()
        return True

    @property
    def has_others(self) -> bool:
        """Whether the group had other workers that stay, at the last read of its documents. True before the first read."""
        return bool(self._observer.members - {self.name}) or not self._observer.has_looked

    @property
    def waits_for(self) -> list[str]:
        """The workers that hold all leases, if this worker has seen no new heartbeat of any of them; else an empty list.

        No shard is read before these leases expire. Workers that have joined since wait for the same leases.
        """
        owners = set() if self._cache.table is None else self._cache.table.owners
        return sorted(owners) if owners <= self._observer.never_moved - {self.name} else []

    def leave(self) -> None:
        """Store all positions, then let `run` return. Other workers acquire the shards without waiting for a lease to expire (E5)."""
        self._giver.leave()

    def end(self) -> None:
        """End this worker: it stores no further positions, and the sink drops records whose positions were not stored (E1).

        Both happen in one step. If the records were dropped first, a checkpoint in progress could store their positions without their rows.
        """
        self._commits.end()
        self._readers.drop_all()

    async def seal(self) -> None:
        """Seal this worker's record after `run` was cancelled, so that other workers acquire the shards at once, from the last
        checkpoint.

        There is one attempt, and only while heartbeats are confirmed. If it fails, the other workers wait until the leases expire.
        """
        if self.permission.is_given:
            with contextlib.suppress(FencedError, StoreUnavailableError):
                await self._heartbeat.seal()
                log.info("worker %s has left its group", self.name)

    async def checkpoint(self, *, may_be_partial: bool = False) -> None:
        """Store how far each shard was emitted or, if `may_be_partial`, how far the sink has finished it. Do nothing before the worker
        has joined.

        Raises: FencedError if this worker was sealed (declared dead); StoreUnavailableError if the store does not answer; StateError if the
        positions cannot be stored; the errors of the sink. While no heartbeat is confirmed each error is a StoreUnavailableError, because
        other workers may have replaced this one, and deleted what the sink writes to.
        """
        if not self._has_joined:
            return
        await self._judged(self._commits.take_checkpoint(may_be_partial=may_be_partial))
        self._checkpoint_ms = self._clock.now_ms()
        if self._owned.ends:
            # The group's documents are read now, because the children of an ended shard wait for its end in the table (S2).
            self._look_now.set()

    # --- tasks ---------------------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        await self._positions.join()
        await self._heartbeat.write()

    async def _send_heartbeats(self) -> None:
        while True:
            try:
                await self._heartbeat.write()
            except StoreUnavailableError as error:
                log.warning("a heartbeat of worker %s was not stored; it is tried again: %s", self.name, error)
            seconds = self._settings.interval * (0.8 + 0.2 * self._random.random())
            await self._wait(seconds if self.permission.is_given else RETRY_SECONDS, asyncio.sleep, self._has_news)

    async def _watch_group(self) -> None:
        while True:
            seconds = self._settings.interval * (0.6 + 0.4 * self._random.random())
            try:
                if await self._judged(self._look()):
                    seconds = HANDOVER_SECONDS
            except StoreUnavailableError as error:
                log.warning("worker %s cannot read its group's documents; it tries again: %s", self.name, error)
                seconds = RETRY_SECONDS
            # If the other workers are leaving too, this one need not wait for them. A short pause lets it notice that.
            if self._giver.is_leaving:
                seconds = min(seconds, LEAVING_SECONDS)
            await self._wait(seconds, functools.partial(wait_at_most, self._look_now), lambda: self._readers.is_held)
            self._look_now.clear()

    async def _wait(
        self, seconds: float, pause: Callable[[float], Awaitable[object]], is_due: Callable[[], bool]
    ) -> None:
        """Wait for this many seconds, or until `pause` returns True.

        If shards are aligned, `is_due` is asked each second, and the wait ends when it returns True.
        """
        if not self._readers.is_aligned:
            await pause(seconds)
            return
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > SHORTEST_SECONDS:
            if await pause(min(left, HELD_SECONDS)) or is_due():
                return

    def _has_news(self) -> bool:
        """Return whether a heartbeat is due before its time, because a worker waits for the watermark of the group (E8).

        It is due if this worker waits and the others do not know it yet, or if any worker waits and the watermark of this one has changed
        since its last heartbeat.
        """
        is_held = self._readers.is_held
        if is_held and self._held_until <= self._clock.monotonic():
            return True
        return (is_held or self._others_are_held) and self._lowest() != self._stated

    def _lowest(self) -> ShardWatermark:
        read = self._readers.watermarks()
        return self._watermark.lowest(read, self._owned.positions_besides(read.keys()), self._clock.monotonic())

    async def _judged(self, work: Awaitable[T]) -> T:
        """Return what `work` returns. While no heartbeat is confirmed, raise StoreUnavailableError instead of an error of `work`.

        The error may come from other workers that have replaced this one, and deleted what it works on. In that case the next heartbeat
        shows it. Otherwise the caller repeats the work, which fails again.
        """
        try:
            return await work
        except (FencedError, StoreUnavailableError):
            raise
        except Exception as error:
            if self.permission.is_given:
                raise
            raise StoreUnavailableError(
                "no heartbeat is confirmed, so other workers may have replaced this one, which may be the reason "
                f"for: {error}"
            ) from error

    # --- one read of the group's documents ---------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Read the group's documents, and act on them. Return whether to read them again soon, because shards are being transferred."""
        view = await self._observer.look()
        if view is None or view.table.alone is not None:
            return await self._begin_group(view)
        self._apply_table()
        known, self.group_maximum = self.group_watermark, view.max_watermark
        self.group_watermark = group_watermark(view, known, self._observer.sealed_for_long)
        if self.group_watermark != known:
            self._on_advance()
        self._others_are_held = view.has_held_besides(self.name)
        sealed = await self._observer.seal_silent(view)
        self._counts.count_sealed(len(view.unsealed) - len(sealed.unsealed))
        view = sealed
        if self._giver.is_leaving or self.name not in view.members:
            self._counts.observe_withheld({})
            return False
        plan = view.plan()
        withheld = view.withheld(plan if self._observer.is_settled else {}, self.name)
        self._counts.observe_withheld({name: withheld[name] for name in withheld.keys() - self._observer.late})
        may_have_taken = await self._taker.take(view, plan)
        late = [shard for shard in view.shards_of(self._observer.late) if shard not in self._taker.free_seconds]
        self._counts.observe_unowned([*self._taker.free_seconds.values(), *[0.0] * len(late)])
        if may_have_taken:
            self._apply_table()
            return True
        if await self._end_shards() or await self._upkeep.remove_deleted():
            return True
        if await self._upkeep.add_listed_shards(view):
            return True
        await self._upkeep.clean(view)
        if self._observer.is_settled:
            self._giver.request(view.shards_to_give(self.name, plan, self._owned.reading))
        return self._giver.is_busy or self._expects(plan) or view.has_handover

    async def _begin_group(self, view: GroupView | None) -> bool:
        """Write the first lease table if there is none, or replace the worker that runs the job alone. Return whether a write was tried."""
        if view is None or view.table.alone is None:
            return await self._upkeep.create_if_missing()
        await self._replace_alone(view.table, view.table.alone)
        return True

    async def _replace_alone(self, table: LeaseTable, alone: AloneOwner) -> None:
        """Seal the worker that runs the job alone, and write a table in which the group has its shards.

        Only the first worker of a process does that.

        Raises: StateError if this process was in the group before the job was started alone.
        """
        if not self._is_first or self._owned.shards:
            raise StateError(
                f"worker {alone.worker} was started alone with this job, which ended the group. This process "
                "ends. To share the shards again, stop that worker and start all processes with --group"
            )
        states, part = await sealed_alone(self._group, alone, self._positions)
        folded = table.folded(states, None if part is None else part.pinned_ms)
        first = None if folded.leases else await self._listing.first_table(self.name)
        if await self._cache.replace(as_group(folded, self.name, first)):
            log.info("worker %s has replaced worker %s, which ran this job alone", self.name, alone.worker)

    def _apply_table(self) -> None:
        """Begin and drop shards according to the newest known lease table."""
        if (table := self._cache.table) is None:
            return
        watermarks = self._readers.watermarks()
        changes = self._owned.apply(table)
        given = [shard for shard in changes.lost if shard in table.leases and not table.leases[shard].ended]
        self._counts.count_moved(len(changes.begun), len(given))
        log_moved(self.name, "takes", changes.begun)
        log_moved(self.name, "has given up", given)
        for shard in watermarks.keys() & set(changes.lost):
            self._watermark.keep(shard, watermarks[shard], self._clock.monotonic())
        self._readers.drop(changes.lost)
        self._upkeep.keep_deleted(self._owned.shards - changes.begun.keys())
        if not self._giver.is_leaving:
            for shard, stored in changes.begun.items():
                is_taken_over = shard in changes.taken_over and not stored.is_idle
                self._readers.begin(shard, stored.state, is_taken_over=is_taken_over)
            if self.name in table.drained:
                log.info("worker %s was asked to leave its group", self.name)
                self._on_drain()

    async def _end_shards(self) -> bool:
        """Write the ends of shards into the table, and their children with them (E7). Return whether any shard had ended."""
        table, ended = self._cache.table, self._owned.ends
        if table is None or not ended:
            return False
        await self._cache.replace(table.after(self.name, ended=await self._listing.with_children(ended)))
        self._apply_table()
        return True

    def _expects(self, plan: Mapping[str, str]) -> bool:
        """Return whether other workers are about to release shards for this one."""
        theirs = {shard for shard, worker in plan.items() if worker == self.name} - set(self._owned.shards)
        return self._observer.is_settled and bool(theirs)

    async def _retry(self, work: Callable[[], Awaitable[object]]) -> None:
        """Repeat the work until the store answers. Each attempt comes after a pause with jitter."""
        while True:
            try:
                await work()
            except StoreUnavailableError as error:
                log.warning("worker %s waits for the store of its group: %s", self.name, error)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS * (0.5 + self._random.random()))

    def _describe(self, beat: int) -> WorkerRecord:
        self._stated = lowest = self._lowest()
        if self._readers.is_held:
            self._held_until = self._clock.monotonic() + 2 * self._settings.interval
        return WorkerRecord(
            self.name,
            beat,
            is_leaving=self._giver.is_leaving,
            parts=self._positions.parts,
            table_version=self._cache.version,
            released=by_stream(self._owned.released),
            watermark=lowest.value,
            is_active=not lowest.is_idle,
            max_watermark=highest_watermark(self._readers.watermarks().values()),
            group_watermark=self.group_watermark,
            loads=by_stream(self._loads.state(self._owned.shards, self._readers.loads())),
            checkpoint_ms=self._checkpoint_ms,
            lease_ms=round(self._settings.duration * 1000),
            host=HOST,
            pid=os.getpid(),
            sent_ms=self._clock.now_ms(),
            is_held=self._clock.monotonic() < self._held_until,
        )


# LeaseGiver releases shards: it stops reading them, takes one checkpoint for all of them, and marks them as released (E5).

MAX_PAUSE_SECONDS = 5.0
"""The longest pause between two checkpoints while the sink has records of a released shard to finish (seconds).

The pause doubles up to this value. So a transfer takes at most twice as long as the sink needs, and a slow transfer costs few writes.
"""
WARN_SECONDS = 60.0


class LeaseGiver:
    """Releases shards that other workers should have, or all shards if the worker is leaving.

    A shard is released when the sink has finished all of its records that were emitted, and the position is stored (`take_checkpoint`). A
    stopped shard is not read again under the same lease. `on_sink_error` is described in `Worker`.
    """

    def __init__(
        self,
        owned: OwnedLeases,
        readers: ShardReaders,
        heartbeat: Heartbeat,
        take_checkpoint: Callable[[], Awaitable[None]],
        on_sink_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._owned = owned
        self._readers = readers
        self._heartbeat = heartbeat
        self._take_checkpoint = take_checkpoint
        self._on_sink_error = on_sink_error
        self._requested: set[str] = set()
        self._has_work = asyncio.Event()
        self.is_leaving = False
        """Whether the worker releases all shards and acquires none."""

    @property
    def is_busy(self) -> bool:
        """Whether shards still wait to be released."""
        return bool(self._requested)

    def request(self, shards: Collection[str]) -> None:
        """Release these shards soon."""
        if shards:
            self._requested |= set(shards)
            self._has_work.set()

    def announce(self) -> None:
        """Acquire no more shards, because all shards will be released soon."""
        self.is_leaving = True

    def leave(self) -> None:
        """Release all shards, and then let `run` return."""
        self.is_leaving = True
        self._has_work.set()

    async def run(self, retry: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        """Release requested shards until the worker has left.

        `retry` calls a function again until the store answers.
        """
        pause, waited = HANDOVER_SECONDS, 0.0
        while True:
            await self._wait_for_work(pause if self._requested else None)
            # Read before the round, because a round that began before the worker was leaving does not cover all shards.
            is_last = self.is_leaving
            try:
                await retry(self.give_once)
            except (FencedError, StateError, ImpossibleStateError):
                # The positions are those of another worker, or in doubt, so this worker has ended.
                raise
            except Exception as error:
                if self._on_sink_error is None:
                    raise
                self._requested.clear()
                self._on_sink_error(error)
                continue
            if not self._requested:
                pause, waited = HANDOVER_SECONDS, 0.0
                if is_last:
                    return
                continue
            waited += pause
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
            if waited >= WARN_SECONDS:
                waited = 0.0
                log.warning(
                    "shards %s wait to be transferred to other workers, because the sink has not finished their "
                    "records",
                    sorted(self._requested),
                )

    async def give_once(self) -> None:
        """Release the requested shards, or all shards if the worker is leaving.

        Raises: FencedError if the worker was sealed; StateError if the positions cannot be stored.
        """
        if self.is_leaving:
            await self._heartbeat.write()  # After this heartbeat no plan gives this worker a shard.
            self._requested |= set(self._owned.shards)
        requested = set(self._requested)
        leases = self._owned.leases_of(requested)
        await self._readers.stop(leases.keys())
        self._owned.stop(leases)
        await self._take_checkpoint()
        await self._heartbeat.write()
        self._requested -= requested - self._owned.unfinished

    async def _wait_for_work(self, seconds: float | None) -> None:
        await wait_at_most(self._has_work, seconds)
        self._has_work.clear()


# LeaseTaker acquires free shards: it stores their positions, then writes the lease table (E3, E5). `GroupView` decides which shards.


class LeaseTaker:
    """Acquires free shards for this worker. Remembers since when each of them was seen free."""

    def __init__(
        self,
        worker: str,
        cache: TableCache,
        owned: OwnedLeases,
        positions: PositionStore,
        commits: PositionCommits,
        heartbeat: Heartbeat,
        loads: LoadLevels,
        clock: Clock,
        settings: LeaseSettings,
    ) -> None:
        self._worker = worker
        self._cache = cache
        self._owned = owned
        self._positions = positions
        self._commits = commits
        self._heartbeat = heartbeat
        self._loads = loads
        self._clock = clock
        self._settings = settings
        self._free_since: dict[PositionKey, float] = {}

    @property
    def free_seconds(self) -> dict[str, float]:
        """How long each free shard has been seen free (seconds)."""
        now = self._clock.monotonic()
        return {key.shard: now - since for key, since in self._free_since.items()}

    async def take(self, view: GroupView, plan: Mapping[str, str]) -> bool:
        """Acquire the free shards that this worker should have. Return whether the lease table may have changed.

        If the outcome of the write is unknown, the same write is repeated on the same version of the table. A position that was stored in
        advance is dropped only when a later version of the table shows that the write did not take effect.

        Raises: FencedError if this worker was sealed; StateError if a stored position is missing or cannot be read.
        """
        again = self._owned.prepared_at(view.table.version)
        self._observe_free(view)
        wanted = view.shards_to_take(self._worker, plan, self.free_seconds, self._settings) - again.keys()
        if not wanted and not again:
            return False
        table = await self._cache.read()
        if table is None or table.version != view.table.version:
            return True
        ended = await self._prepare(view, wanted)
        if ended is None:
            return True
        if self._owned.prepared_at(table.version):
            await self._commits.store_prepared()
            # This record counts the shards for the watermark. It must be stored before the former owners may stop counting
            # them (E8).
            await self._heartbeat.write()
        await self._write(table, ended)
        return True

    async def _write(self, before: LeaseTable, ended: Mapping[str, ShardEnd]) -> None:
        """Write the lease table. If another worker was faster, write again on its version, but only the leases that it has not changed.

        Before each further attempt a heartbeat proves that this worker is not sealed. The documents of a sealed worker are deleted once the
        table has a later version, so a later write must not name it (E12).
        """
        taken: Mapping[str, int] = self._owned.prepared_at(before.version)
        for _ in range(MAX_ATTEMPTS):
            table = self._cache.table or before
            taken = {shard: each for shard, each in taken.items() if table.leases.get(shard) == before.leases[shard]}
            ended = {shard: each for shard, each in ended.items() if table.leases.get(shard) == before.leases[shard]}
            if not taken and not ended:
                return
            self._owned.on_take(taken, table.version)
            if await self._cache.replace(table.after(self._worker, taken=taken, ended=ended)):
                return
            await self._heartbeat.write()

    def _observe_free(self, view: GroupView) -> None:
        now = self._clock.monotonic()
        free = {PositionKey(shard, view.table.leases[shard].epoch) for shard in view.free_shards()}
        self._free_since = {key: self._free_since.get(key, now) for key in free}

    async def _prepare(self, view: GroupView, shards: Collection[str]) -> dict[str, ShardEnd] | None:
        """Keep the positions of the shards that can still be read, to be stored in advance. Return the shards that were read to their
        end (E7).

        Return None if the table has changed during the call.
        """
        ended: dict[str, ShardEnd] = {}
        by_owner: dict[str | None, list[str]] = {}
        for shard in sorted(shards):
            by_owner.setdefault(view.table.leases[shard].owner, []).append(shard)
        for owner, theirs in by_owner.items():
            positions = {} if owner is None else await self._positions_of(view, owner)
            for shard in theirs:
                stored = _stored_position(view.table, shard, positions)
                if stored is None:
                    await self._fail_unless_changed(view.table, shard)
                    return None
                if stored.state.ended:
                    ended[shard] = ShardEnd(stored.state.watermark, stored.children, stored.state.seen_ms)
                else:
                    self._loads.inherit(shard, view.load_level(shard))
                    self._owned.prepare(shard, view.table.version, stored, had_owner=owner is not None)
        return ended

    async def _positions_of(self, view: GroupView, owner: str) -> Positions:
        record = view.records[owner]
        return await (self._positions.seal(record) if record.is_sealed else self._positions.read(record))

    async def _fail_unless_changed(self, before: LeaseTable, shard: str) -> None:
        """Raise StateError, because a position is missing, unless the lease table has changed.

        If it has changed, the owner may have seen a later table in which it does not own the shard, and dropped the position rightly.
        """
        table = await self._cache.read()
        if table is None or table.version == before.version:
            lease = before.leases[shard]
            raise StateError(
                f"the position of {shard} is missing: worker {lease.owner} must have stored it. If it was written by a sink that keeps "
                "positions, the position is with the rows of that sink: start with that sink again, or take the positions along with "
                "`recordpublisher positions`"
            )


def _stored_position(table: LeaseTable, shard: str, positions: Positions) -> StoredPosition | None:
    lease = table.leases[shard]
    if lease.owner is None:
        return StoredPosition(table.initial_state(shard))
    return positions.get(PositionKey(shard, lease.epoch))
