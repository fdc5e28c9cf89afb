"""One process of a simulated job that runs alone or in a group, over documents in a shared store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from recordpublisher.fetcher.elastic.alone_worker import AloneWorker
from recordpublisher.fetcher.elastic.job_storage import JobStorage, group_job_of
from recordpublisher.fetcher.elastic.leased_ownership import LeasedOwnership
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.watermarks import OwnWatermark
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.records import RecordBatch

from ..checked_process import CheckedProcess
from ..elastic.shared_store import Faults, SharedStore, StoreClient
from ..rule_checker import RuleChecker
from ..simulated_stream import SimulatedStream
from ..simulator import Clock, Simulator
from .worker_schedule import WorkerRun

REFUSED_SECONDS = 5.0


class SimulatedWorker(CheckedProcess):
    """Owns the connection to the store, too. `is_alone`: it owns every shard without a deadline; else it is one worker of a group."""

    def __init__(
        self,
        number: int,
        simulator: Simulator,
        stream: SimulatedStream,
        job_run: WorkerRun,
        checker: RuleChecker,
        shared: SharedStore,
        seed: int,
        listed_streams: Callable[[], tuple[str, ...]],
    ) -> None:
        self.is_alone = job_run.is_alone
        self.must_restart = False
        self.faults = Faults(share=job_run.loss / 3, usual=min(job_run.max_delay, 0.2))
        self._shared = shared
        self._chance = random.Random(f"{seed} chance")
        self._highest: int | None = None
        super().__init__(number, simulator, stream, job_run, checker, seed, listed_streams)

    def _build(self) -> ShardFetcher:
        clock, tracker = Clock(self._simulator), OwnWatermark()
        self.store = StoreClient(self._simulator, self.process, self._shared, self.faults, self._chance)
        group = JobStorage(self.store, LeaseSettings(), chance=self._chance)
        if not self.is_alone:
            return build_fetcher(self._parts(tracker), group)
        streams = self._parts(tracker).discovery.streams
        alone = AloneWorker(group, group_job_of(streams, self.sink), self.sink, clock)
        return build_fetcher(self._parts(tracker, alone=alone, check_owner=alone.check_owner))

    async def _run(self) -> None:
        """A start alone is refused while a group lives, also if a heartbeat of a killed worker arrives late. A supervisor repeats it."""
        while True:
            try:
                await self.fetcher.open()
            except StateError as error:
                if "sends heartbeats" not in str(error):
                    raise
                await asyncio.sleep(REFUSED_SECONDS)
            else:
                break
        try:
            await self._read()
        except StoreUnavailableError:
            # A run that ends by itself in an outage cannot store its last checkpoint. The next start repeats what follows the one before.
            if not (self.is_alone and self._stream.plan.is_finite):
                raise
            self.must_restart = self._checker.may_repeat = True

    @property
    def _may_write(self) -> bool:
        """A worker of a group writes only while its heartbeats are confirmed (E4). One that runs alone waits for nobody (A10)."""
        ownership = self.fetcher._ownership
        return not isinstance(ownership, LeasedOwnership) or ownership.membership.may_write

    def calm(self) -> None:
        """Nothing happens to its calls any more."""
        self.faults.share, self.faults.usual, self.store.is_cut_off = 0.0, 0.1, False

    def cut_off(self, seconds: float) -> None:
        """Lose every call for this time."""
        self.store.is_cut_off = True
        self._simulator.after(seconds, lambda: setattr(self.store, "is_cut_off", False))

    def on_write(self, batch: RecordBatch) -> None:
        self._checker.check_begin(batch)
        super().on_write(batch)

    def check_global_watermark(self) -> None:
        """The watermark that the process knows never falls (W6, A11)."""
        value, before = self.tracker.current(), self._highest
        holds = before is None or (value is not None and value >= before)
        self._checker.expect(holds, "W6", f"process {self.number}: the global watermark fell from {before} to {value}")
        self._highest = value
