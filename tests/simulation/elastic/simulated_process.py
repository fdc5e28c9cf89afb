"""SimulatedProcess: one process of a group. When its worker is sealed it goes on as a new one."""

from __future__ import annotations

import asyncio
import random
from functools import lru_cache

from recordpublisher.fetcher.conditional_store import StoredDocument, VersionedValue
from recordpublisher.fetcher.elastic.positions_with_rows import PositionsWithRows, SinkLives
from recordpublisher.fetcher.global_watermark_rules import emit_limit
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.shard_listing import ShardListing
from recordpublisher.fetcher.leases.worker import Worker
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from ..simulator import Clock, Simulator
from .group_checker import GroupChecker
from .group_schedule import GroupSchedule
from .shared_store import SharedStore, StoreClient
from .simulated_readers import SimulatedReaders
from .simulated_shards import STREAM, SimulatedShards
from .sink_database import BetweenWrites, SimulatedSink, SinkDatabase
from .traps import Trap, Traps

CLOCKS = ["stopped", "stopped", "asleep", "paused"]
CHECKPOINT_SECONDS, LISTING_SECONDS = 8.0, 10.0


class SuspendableClock(Clock):
    """The clocks of a process, by what a suspension is to them.

    - "stopped": the process is stopped, and all clocks run on.
    - "asleep": the machine sleeps. Its monotonic clock stands still, and its wall clock is set back on waking: only `boottime` counts.
    - "paused": the virtual machine is paused, and only its wall clock is set afterwards.
    """

    def __init__(self, simulator: Simulator, kind: str) -> None:
        super().__init__(simulator)
        self.kind = kind
        self._suspensions: list[tuple[float, float]] = []

    def suspend(self, seconds: float) -> None:
        self._suspensions.append((self._simulator.now, self._simulator.now + seconds))

    def now_ms(self) -> int:
        return super().now_ms() - (round(self._suspended_seconds * 1000) if self.kind == "asleep" else 0)

    def monotonic(self) -> float:
        return self._simulator.now - (0.0 if self.kind == "stopped" else self._suspended_seconds)

    def boottime(self) -> float:
        return self._simulator.now - (self._suspended_seconds if self.kind == "paused" else 0.0)

    @property
    def _suspended_seconds(self) -> float:
        now = self._simulator.now
        return sum(min(end, now) - begin for begin, end in self._suspensions)


@lru_cache(256)
def _parsed(name: str, value: VersionedValue) -> StoredDocument[WorkerRecord]:
    """A record; every worker of the group reads it again and again."""
    return StoredDocument(WorkerRecord.from_bytes(value.value, name), value.version)


class SuspendableGroupStore(GroupStore):
    """A process can be suspended between two calls, where no time-out runs."""

    def __init__(self, client: StoreClient, timeout: float) -> None:
        super().__init__(client, timeout)
        self._client = client

    async def write(self, name: str, content: bytes, expected: str | None) -> str:
        await self._client.before_write(name)
        return await super().write(name, content, expected)

    def _record_of(self, name: str, value: VersionedValue) -> StoredDocument[WorkerRecord]:
        return _parsed(name, value)


class SimulatedProcess:
    """Owns the loop of a process, its connection to the store, and the present life of its worker."""

    def __init__(
        self,
        name: str,
        simulator: Simulator,
        store: SharedStore,
        database: SinkDatabase | None,
        shards: SimulatedShards,
        checker: GroupChecker,
        schedule: GroupSchedule,
    ) -> None:
        self.name = name
        self.has_left = False
        self.is_leaving = False
        self._simulator = simulator
        self._shards = shards
        self._checker = checker
        self._schedule = schedule
        self._random = random.Random(f"{schedule.seed} {name}")
        self.process = simulator.process()
        by_chance = CLOCKS[int(self._random.random() * len(CLOCKS))]
        self.clock = SuspendableClock(simulator, schedule.clock or by_chance)
        self.client = StoreClient(simulator, self.process, store, schedule.faults, self._random)
        entries = store if database is None else database.entries
        self._sink_client = StoreClient(simulator, self.process, entries, schedule.faults, self._random)
        """The sink is another service: it may be in reach while the store of the group is not."""
        self.client.suspend = self._sink_client.suspend = lambda: self.suspend(
            self._random.choice([3, 15, 30, 90]) * self._random.random()
        )
        self.client.traps, self.client.on_trap = Traps(schedule.traps, name), self._apply_trap
        self._sink_client.traps, self._sink_client.on_trap = Traps(schedule.sink_traps, name), self._apply_trap
        self._not_found: set[str] = set()
        self._listing = ShardListing(
            self._list_shards,
            MissingShards(self._exists),
            StartingPosition.at_timestamp(self.clock.now_ms())
            if schedule.is_latest
            else StartingPosition.trim_horizon(),
            self.clock,
            LISTING_SECONDS,
            is_latest=schedule.is_latest,
            not_found=self._not_found,
        )
        self._sink_lives = (
            None
            if database is None
            else SinkLives(SimulatedSink(self._sink_client, database, schedule.timeout), BetweenWrites(), self.clock)  # type: ignore[arg-type]
        )
        self.worker: Worker | None = None
        self.lives = 0
        self.task = self.process.spawn(self._run())

    @property
    def is_live(self) -> bool:
        return not self.process.is_dead and not self.has_left and not self.is_leaving

    @property
    def is_disturbed(self) -> bool:
        return self.process.is_disturbed or self.client.is_cut_off

    def suspend(self, seconds: float) -> None:
        self.clock.suspend(seconds)
        self.process.suspend(seconds)

    def leave(self) -> None:
        self.is_leaving = True
        if self._schedule.seed % 2:
            self.process.spawn(self._announce_and_leave())
        else:
            self.process.call_soon(self._leave)

    def _apply_trap(self, trap: Trap) -> None:
        if trap.what == "kill":
            self.process.kill()
        elif trap.what == "suspend":
            self.suspend(trap.seconds)
        else:
            self.cut_off(trap.seconds)

    def cut_off(self, seconds: float) -> None:
        self.client.is_cut_off = True

        def restore() -> None:
            self.client.is_cut_off = False

        self._simulator.after(seconds, restore)

    async def _announce_and_leave(self) -> None:
        if self.worker is not None and await self.worker.announce():
            await asyncio.sleep(LeaseSettings().announce_seconds)
        self._leave()

    def _leave(self) -> None:
        if self.worker is not None:
            self.worker.leave()

    async def _run(self) -> None:
        settings = LeaseSettings(shards_per_part=self._schedule.shards_per_part)
        while True:
            self.lives += 1
            name = f"{self.name}.{self.lives}"
            readers = SimulatedReaders(
                name,
                self._simulator,
                self.process,
                self._shards,
                self._checker,
                self._random,
                self._schedule.flush_seconds,
                self._sink_lives,
                names_children=self._schedule.names_children,
            )
            group = SuspendableGroupStore(self.client, self._schedule.timeout)
            positions = None
            if self._sink_lives is not None:
                positions = PositionsWithRows(
                    self._sink_lives,
                    self.client,
                    group,
                    name,
                    job="job",
                    clock=self.clock,
                    duration=settings.duration,
                )
            self.worker = Worker(
                name,
                group,
                readers,
                self._listing,
                settings,
                self.clock,
                positions=positions,
                jitter=self._random,
            )
            readers.on_deleted = lambda: self._listing.deleted.add(STREAM)
            readers.may_write = lambda worker=self.worker: worker.permission.is_given
            readers.is_limited = self._schedule.lookahead is not None
            readers.emit_limit = lambda worker=self.worker: emit_limit(worker.group_watermark, self._schedule.lookahead)
            if self.clock.kind == "paused":  # a clock that counts suspensions needs no detector
                readers.detector = SuspensionDetector(
                    self.clock, lambda late, worker=self.worker: worker.permission.on_suspension()
                )
            if self.is_leaving:
                self.has_left = True
                return
            try:
                await self._live(self.worker, readers)
            except FencedError:
                self._checker.counts["fenced"] += 1
                await asyncio.sleep(0.1)
            else:
                self.has_left = True
                return

    async def _live(self, worker: Worker, readers: SimulatedReaders) -> None:
        running = asyncio.ensure_future(worker.run())
        beside = [readers.run(), self._take_checkpoints(worker, readers)]
        if readers.detector is not None:
            beside.append(readers.detector.run())
        others = [asyncio.ensure_future(work) for work in beside]
        try:
            await asyncio.wait([running, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in (running, *others):
                if task.done():
                    task.result()
        except BaseException:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            worker.end()  # as GroupMembership: at once, while a checkpoint may be in progress
            raise
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _checkpoint(self, worker: Worker) -> None:
        """As GroupMembership does. Nothing cuts it off but the end of its process: not even the end of its life."""
        try:
            await worker.checkpoint()
        except FencedError:
            self._checker.counts["fenced checkpoints"] += 1
            await worker.seal()
            raise

    async def _take_checkpoints(self, worker: Worker, readers: SimulatedReaders) -> None:
        while True:
            try:
                async with asyncio.timeout(CHECKPOINT_SECONDS):
                    await readers.request_checkpoint.wait()
            except TimeoutError:
                pass
            readers.request_checkpoint.clear()
            try:
                checkpoint = asyncio.ensure_future(self._checkpoint(worker))
                checkpoint.add_done_callback(lambda task: task.cancelled() or task.exception())
                await asyncio.shield(checkpoint)
            except StoreUnavailableError:
                self._checker.counts["checkpoints failed"] += 1
            await asyncio.sleep(0.1)

    async def _exists(self, shard: Shard) -> bool:
        return shard.key in self._shards.by_key and not self._shards.by_key[shard.key].is_expired

    async def _list_shards(self) -> list[Shard]:
        """ListShards is eventually consistent: the newest shards may be missing, or a generation."""
        await asyncio.sleep(self._random.uniform(0, 0.2))
        self._not_found.clear()
        if not self._shards.by_key:
            self._not_found.add(STREAM)
        shards = [each.as_listed() for each in self._shards.by_key.values()]
        surely = max(len(self._shards.roots), self._shards.long_listed)
        shards = shards[: max(surely, len(shards) - self._random.choice([0, 0, 1, 3]))]
        is_old = self._schedule.has_old_listings and self._simulator.now < self._schedule.disturbed_seconds
        lacking = self._shards.lacking(self._simulator.now) if is_old else set()
        return [each for each in shards if each.key not in lacking and not self._shards.by_key[each.key].is_expired]
