"""One worker of a group, from joining to leaving: it sends heartbeats, reads the group's documents, and acquires and releases shards."""

import asyncio
import contextlib
import functools
import logging
import math
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from recordpublisher.publishers.clock import Clock, wait_until_set
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError, StateError, StoreUnavailableError
from recordpublisher.publishers.retry import LOG_INTERVAL_SECONDS
from recordpublisher.publishers.safe_text import few_of

from ..checkpoints.checkpoint_schedule import CheckpointAge
from ..sink import RevocationReason
from .document_format import by_stream
from .group_counters import GroupCounters
from .group_observer import GroupObserver
from .group_store import GroupStore, TableCache
from .group_upkeep import GroupUpkeep
from .group_watermark import ShardWatermark, WorkerWatermark, group_watermark, highest_watermark, is_above
from .heartbeat import Heartbeat, WritePermission, join_group
from .lease_settings import HANDOVER_SECONDS, HELD_POLL_SECONDS, LEAVING_POLL_SECONDS, RETRY_SECONDS, LeaseSettings
from .lease_table import AloneOwner, GroupJob, LeaseTable, table_of_new_group
from .lease_transfers import LeaseGiver, LeaseTaker
from .owned_leases import OwnedLeases, log_moved
from .planning import GroupView, StatedLoadLevels
from .position_commits import PositionCommits
from .position_store import PartPositionStore, PositionStore, ShardReaders
from .shard_listing import ShardListing
from .worker_record import HOST, MAX_HANDLER, WorkerRecord
from .worker_sealing import seal_alone_worker, seal_silent

log = logging.getLogger("recordpublisher.group")
SHORTEST_WAIT_SECONDS = 0.001
"""A shorter remaining wait counts as over, because a timer may fire early by the resolution of its clock (seconds)."""
T = TypeVar("T")


class Worker:
    """Takes part in a group under one name: decides when to send heartbeats, read the group's documents, and acquire or release shards.

    - `name`: random, and never used again.
    - `on_drain`: called when a person has asked this worker to leave. Without `on_drain` the worker leaves.
    - `on_sink_error`: called with an error of the sink while shards are acquired or released. The worker stays in the group until `leave`,
      which may then store what the sink has finished. Without `on_sink_error`, `run` raises the error.
    - `job`: the job of this process. None is compatible with every job.
    - `is_first`: whether this is the first worker of its process. Only the first one may replace a worker that runs alone.
    - `on_advance`: called when the watermark of the group, as this worker knows it, has changed.
    - `handler`: the name of the user's function that the sink of this worker calls, or "".
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
        counts: GroupCounters | None = None,
        on_drain: Callable[[], None] | None = None,
        on_sink_error: Callable[[Exception], None] | None = None,
        job: GroupJob | None = None,
        times: CheckpointAge | None = None,
        is_first: bool = True,
        on_advance: Callable[[], None] = lambda: None,
        handler: str = "",
    ) -> None:
        self._handler = handler[:MAX_HANDLER]
        self._on_sink_error = on_sink_error
        self.name = name
        self._group = group
        self._is_first = is_first
        self._on_advance = on_advance
        self._counts = counts or GroupCounters()
        self._on_drain = on_drain or self.leave
        self.permission = WritePermission(clock, settings.write_seconds)
        self._readers = readers
        self._settings = settings
        self._clock = clock
        self._random = jitter or random.Random()  # noqa: S311 - jitter
        self._owned = OwnedLeases(name)
        self._checkpoint_ms: int | None = None
        self._loads = StatedLoadLevels()
        self._cache = TableCache(group, clock, job)
        self._heartbeat = Heartbeat(group, name, self._describe, self.permission)
        self._positions = positions or PartPositionStore(group, name, settings.shards_per_part, self._heartbeat.write)
        self._commits = PositionCommits(self._owned, readers, self._positions, times or CheckpointAge(clock))
        self._observer = GroupObserver(group, self._cache, clock, name, settings, self._handler)
        self._taker = LeaseTaker(
            name,
            self._cache,
            self._owned,
            self._positions,
            self._commits,
            self._heartbeat,
            self._loads,
            listing,
            clock,
            settings,
        )
        self._listing = listing
        self._upkeep = GroupUpkeep(name, group, self._cache, self._positions, listing)
        self._watermark = WorkerWatermark(2 * settings.interval)
        self.group_watermark: int | None = None
        """The highest watermark of the group that this worker knows."""
        self.waits_for_others = False
        """Whether the watermark of the group was below that of this worker, at the last read of its documents."""
        self.group_maximum: int | None = None
        """The highest watermark of any shard of the group, at the last read of its documents."""
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
        self._gone: frozenset[str] = frozenset()
        """The shards of this worker whose leases the newest table lacks, because their streams were deleted."""
        self._gone_until = 0.0
        self._warned: dict[str, tuple[float, int]] = {}
        """Each text of `_warn`, with the time of its last line (monotonic seconds), and the number of failures since then."""

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

        From now on this worker gets no further shards, and the other workers read the group's documents often. This worker continues to
        read its shards until `leave`.
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
        return bool(self._observer.members - {self.name}) or not self._observer.has_read_group

    @property
    def is_joining(self) -> bool:
        """Whether the group has not yet decided what this worker reads.

        That is so while the lease table is not known, while no worker owns a shard, or while this worker has begun none of the shards it
        owns.
        """
        if (table := self._cache.table) is None:
            return True
        has_free = not table.owners and not all(lease.ended for lease in table.leases.values())
        return has_free or (self.name in table.owners and not self._owned.shards)

    @property
    def waits_for(self) -> list[str]:
        """The workers that hold all leases, if each of them may have been killed before this worker joined; else an empty list.

        No process reads a shard before these leases expire.
        """
        owners = set() if self._cache.table is None else self._cache.table.owners
        return sorted(owners) if owners <= self._observer.maybe_killed - {self.name} else []

    def leave(self) -> None:
        """Store all positions, then let `run` return. Other workers acquire the shards without waiting for a lease to expire."""
        self._giver.leave()

    def end(self) -> None:
        """End this worker: it stores no further positions, and the sink drops records whose positions were not stored.

        Both happen in one step. If the records were dropped first, a checkpoint in progress could store their positions without their rows.
        """
        self._commits.end()
        self._readers.drop_all()

    async def seal(self) -> None:
        """Seal this worker's record after `run` was cancelled, so that other workers acquire the shards at once.

        They continue from the last checkpoint. There is one attempt, and only while heartbeats are confirmed. If it fails, the other
        workers wait until the leases expire.
        """
        if self.permission.is_given:
            with contextlib.suppress(FencedError, StoreUnavailableError):
                await self._heartbeat.seal()
                log.info("worker %s has left its group", self.name)

    async def checkpoint(self, *, may_be_partial: bool = False) -> None:
        """Store how far each shard was written to the sink or, if `may_be_partial`, how far the sink has finished its records.

        Do nothing before the worker has joined.

        Raises: FencedError if this worker was sealed (declared dead); StoreUnavailableError if the store does not answer; StateError if the
        positions cannot be stored; the errors of the sink. While no heartbeat is confirmed, StoreUnavailableError replaces the other
        errors.
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
        has_warned = False
        while True:
            try:
                await self._heartbeat.write()
            except StoreUnavailableError as error:
                has_warned |= self._warn("a heartbeat of worker %s was not stored; it is tried again%s: %s", error)
            else:
                if has_warned:  # A single failure soon after another has no line, so its end has none either.
                    log.info("the group's store answers worker %s again", self.name)
                    has_warned = False
            seconds = self._settings.interval * (0.8 + 0.2 * self._random.random())
            await self._wait(seconds if self.permission.is_given else RETRY_SECONDS, asyncio.sleep, self._has_news)

    async def _watch_group(self) -> None:
        while True:
            seconds = self._settings.interval * (0.6 + 0.4 * self._random.random())
            try:
                if await self._judged(self._look()):
                    seconds = HANDOVER_SECONDS
            except StoreUnavailableError as error:
                self._warn("worker %s could not read or change the leases of its group; it tries again%s: %s", error)
                seconds = RETRY_SECONDS
            # If the other workers are leaving too, this one need not wait for them. A short pause lets it notice that.
            if self._giver.is_leaving:
                seconds = min(seconds, LEAVING_POLL_SECONDS)
            await self._wait(seconds, functools.partial(wait_until_set, self._look_now), lambda: self._readers.is_held)
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
        while (left := until - self._clock.monotonic()) > SHORTEST_WAIT_SECONDS:
            if await pause(min(left, HELD_POLL_SECONDS)) or is_due():
                return

    def _has_news(self) -> bool:
        """Return whether to send the next heartbeat at once, because alignment holds back a shard of the group.

        There are two cases:

        - A shard of this worker is held back, and the other workers do not know it yet.
        - Any shard of the group is held back, and the watermark of this worker has changed since its last heartbeat.
        """
        is_held = self._readers.is_held
        if is_held and self._held_until <= self._clock.monotonic():
            return True
        return (is_held or self._others_are_held) and self._lowest() != self._stated

    def _lowest(self) -> ShardWatermark:
        read = self._readers.watermarks()
        return self._watermark.lowest(read, self._owned.positions_besides(read.keys()), self._clock.monotonic())

    async def _judged(self, work: Awaitable[T]) -> T:
        """Await `work`, and return its result. While no heartbeat is confirmed, an error of `work` is raised as StoreUnavailableError.

        Other workers may have replaced this one and deleted the rows or documents that `work` needs. The caller tries again: then a
        heartbeat shows that the worker was replaced, or the work fails with its own error.
        """
        try:
            return await work
        except (FencedError, StoreUnavailableError):
            raise
        except Exception as error:
            if self.permission.is_given:
                raise
            raise StoreUnavailableError(
                "no heartbeat is confirmed, so other workers may have replaced this one. That may be the reason for "
                f"this error: {error}"
            ) from error

    # --- one read of the group's documents ---------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Read the group's documents, and act on them. Return whether to read them again soon, because shards are being transferred."""
        view = await self._observer.read_group()
        if view is None or view.table.alone is not None:
            return await self._begin_group(view)
        # Before the wait for records of deleted streams, because alignment may hold these records back.
        known, self.group_maximum = self.group_watermark, view.max_watermark
        self.group_watermark = group_watermark(view, known, self._observer.sealed_for_long)
        self.waits_for_others = is_above(view.records.get(self.name), self.group_watermark)
        if self.group_watermark != known:
            self._on_advance()
        self._others_are_held = view.has_held_besides(self.name)
        if await self._waits_for_deleted():
            return True
        self._apply_table()
        sealed = await seal_silent(self._observer, view)
        self._counts.count_sealed(len(view.unsealed) - len(sealed.unsealed))
        view = sealed
        if self._giver.is_leaving or self.name not in view.members:
            self._counts.set_withheld({})
            return False
        plan = view.plan()
        withheld = view.withheld(plan if self._observer.is_settled else {}, self.name)
        self._counts.set_withheld({name: withheld[name] for name in withheld.keys() - self._observer.late})
        may_have_taken = await self._taker.take(view, plan)
        late = [shard for shard in view.shards_of(self._observer.late) if shard not in self._taker.free_seconds]
        self._counts.set_unowned([*self._taker.free_seconds.values(), *[0.0] * len(late)])
        if may_have_taken:
            self._apply_table()
            return True
        upkeep = self._upkeep
        if await self._end_shards() or await upkeep.remove_deleted() or await upkeep.add_listed_shards(view):
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
        """Seal the worker that runs the job alone, and write a lease table that gives its shards to the group.

        Only the first worker of a process does that.

        Raises: StateError if this process was in the group before the job was started alone.
        """
        if not self._is_first or self._owned.shards:
            raise StateError(
                f"worker {alone.worker} was started alone with this job, which ended the group. This process "
                "ends. To share the shards again, stop that worker and start all processes with --group"
            )
        # If this worker was sealed before that start, it wakes late and may not replace it. Then this heartbeat fails.
        await self._heartbeat.write()
        states, part = await seal_alone_worker(self._group, alone, self._positions)
        folded = table.with_alone_leases(states, None if part is None else part.pinned_ms)
        first = None if folded.leases else await self._listing.first_table(self.name)
        if await self._cache.replace(table_of_new_group(folded, self.name, first)):
            log.info("worker %s has replaced worker %s, which ran this job alone", self.name, alone.worker)

    async def _waits_for_deleted(self) -> bool:
        """Return whether to wait before the newest lease table is applied: it lacks shards whose records the sink has not finished.

        These are shards of deleted streams, so no later reader can read the records again. This worker waits for at most a lease duration.
        Then it stores what the sink has finished. The sink drops the rest with the shards.
        """
        gone, now = self._gone_shards(), self._clock.monotonic()
        deleted = gone - self._owned.ends.keys()
        if gone - self._gone:
            if deleted - self._gone:
                # If this worker was sealed, others may have read these shards to their ends. Then this heartbeat fails.
                await self._heartbeat.write()
            self._gone_until = now + self._settings.duration
        self._gone |= gone
        if not gone:
            self._gone = frozenset()
        else:
            is_unfinished = self._readers.has_unfinished(deleted)
            # The wait is limited, because this worker neither takes nor releases shards while it waits.
            if is_unfinished and now < self._gone_until:
                return True
            await self.checkpoint(may_be_partial=True)
            if is_unfinished:
                text = "records of deleted streams were not finished in %g s: they are dropped, and cannot be read again: %s"
                log.error(text, self._settings.duration, few_of(sorted(deleted)))
        return False

    def _gone_shards(self) -> frozenset[str]:
        table = self._cache.table
        return frozenset() if table is None else frozenset(self._owned.shards - table.leases.keys())

    def _apply_table(self) -> None:
        if (table := self._cache.table) is None or self._gone_shards() - self._gone:
            return  # The next look decides whether to wait for shards that are gone.
        watermarks = self._readers.watermarks()
        changes = self._owned.apply(table)
        given, lost = (changes.revoked_for(reason) for reason in (RevocationReason.GIVEN, RevocationReason.LOST))
        self._counts.count_moved(len(changes.begun), len(given) + len(lost))
        log_moved(self.name, "takes", list(filter(table.is_of_job, changes.begun)))
        log_moved(self.name, "has given up", list(filter(table.is_of_job, given)))
        log_moved(self.name, "has lost", list(filter(table.is_of_job, lost)))
        for shard in watermarks.keys() & changes.revoked.keys():
            self._watermark.keep(shard, watermarks[shard], self._clock.monotonic())
        self._readers.drop(changes.revoked)
        self._upkeep.forget_deleted(self._owned.shards - changes.begun.keys())
        if not self._giver.is_leaving:
            for shard, stored in changes.begun.items():
                is_taken_over = shard in changes.taken_over and not stored.is_idle
                try:
                    self._readers.begin(shard, stored.state, is_taken_over=is_taken_over)
                except (FencedError, StateError, ImpossibleStateError):
                    raise
                except Exception as error:
                    if self._on_sink_error is None:
                        raise
                    # The worker stays until the positions of its other shards are stored. An error of `revoked` ends it at once: the sink
                    # may still have rows of a shard that another worker reads.
                    self._on_sink_error(error)
            if self.name in table.drained:
                log.info("worker %s was asked to leave its group", self.name)
                self._on_drain()

    async def _end_shards(self) -> bool:
        """Write into the table which shards have ended, and add their children. Return whether any shard had ended."""
        table, ended = self._cache.table, self._owned.ends
        if table is None or not ended:
            return False
        await self._cache.replace(table.with_changes(self.name, ended=await self._listing.with_children(ended)))
        self._apply_table()
        return True

    def _expects(self, plan: Mapping[str, str]) -> bool:
        theirs = {shard for shard, worker in plan.items() if worker == self.name} - set(self._owned.shards)
        return self._observer.is_settled and bool(theirs)

    async def _retry(self, work: Callable[[], Awaitable[object]]) -> None:
        """Repeat `work` while it raises StoreUnavailableError. Pause with jitter between attempts."""
        while True:
            try:
                await work()
            except StoreUnavailableError as error:
                self._warn("worker %s waits for the state store or the sink, and tries again%s: %s", error)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS * (0.5 + self._random.random()))

    def _warn(self, text: str, error: StoreUnavailableError) -> bool:
        """Log that a call to the store has failed, at most once in `LOG_INTERVAL_SECONDS` for each text, with the number of others.

        Return whether this failure was logged.
        """
        now = self._clock.monotonic()
        logged_at, unlogged = self._warned.get(text, (-math.inf, 0))
        if now - logged_at < LOG_INTERVAL_SECONDS:
            self._warned[text] = logged_at, unlogged + 1
            return False
        self._warned[text] = now, 0
        log.warning(text, self.name, f" ({unlogged} others since the last such line)" if unlogged else "", error)
        return True

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
            handler=self._handler,
            sent_ms=self._clock.now_ms(),
            is_held=self._clock.monotonic() < self._held_until,
        )
