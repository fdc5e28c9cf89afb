"""One subtask of a simulated job with a fixed number of subtasks."""

from __future__ import annotations

from collections.abc import Callable

from recordpublisher.fetcher.assembly import build_fetcher
from recordpublisher.fetcher.checkpoints.snapshot_store import SubtaskCheckpoints
from recordpublisher.fetcher.coordination.watermark_tracker import WatermarkTracker
from recordpublisher.fetcher.subtask_fetcher import SubtaskFetcher
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from .checked_process import STARTUP_SECONDS, CheckedProcess, properties_of
from .checkpoint_history import CheckpointHistory, SimulatedStateStore
from .network import TrackerClient
from .rule_checker import RuleChecker
from .schedule import JobRun
from .simulated_stream import SimulatedStream
from .simulator import Process, Simulator

TICK_SECONDS = 0.5
"""By how much a process may overestimate its running time at each suspension: it measures at ticks, and one may begin between two."""


def owner_of(shard: Shard, parallelism: int) -> int:
    """Which subtask reads a shard."""
    return int(shard.shard_id) % parallelism


class Subtask(CheckedProcess):
    """Reports to the tracker of its job, and stores its positions in the history of checkpoints."""

    def __init__(
        self,
        number: int,
        simulator: Simulator,
        stream: SimulatedStream,
        job_run: JobRun,
        checker: RuleChecker,
        checkpoints: CheckpointHistory,
        tracker_of: Callable[[Properties, Process], WatermarkTracker],
        seed: int,
        is_remote: bool,
        listed_streams: Callable[[], tuple[str, ...]],
    ) -> None:
        self._checkpoints = checkpoints
        self._tracker_of = tracker_of
        self._is_remote = is_remote
        self._started_at = simulator.now
        super().__init__(number, simulator, stream, job_run, checker, seed, listed_streams)

    def _build(self) -> SubtaskFetcher:
        """With the in-process tracker a missing subtask is an error (W6), which the schedules do not test."""
        startup_ms = round(STARTUP_SECONDS * 1000) if self._is_remote else 600_000
        properties = properties_of(self._job_run, self._stream, startup_ms)
        store = SimulatedStateStore(self._checkpoints, self.process)
        parts = self._parts(
            properties,
            self._tracker_of(properties, self.process),
            assigner=owner_of,
            checkpoints=SubtaskCheckpoints(store, self.number, self._job_run.parallelism),
            subtask=self.number,
            parallelism=self._job_run.parallelism,
        )
        return build_fetcher(parts)

    @property
    def _is_without_tracker(self) -> bool:
        """The process ran for the start-up timeout and never got a response, also not since it resumed last (W10)."""
        if not isinstance(self._tracker, TrackerClient) or self._tracker.responded_at > 0:
            return False
        now, process = self._simulator.now, self.process
        running = now - self._started_at - process.suspended_seconds
        is_over = running >= STARTUP_SECONDS - TICK_SECONDS * max(process.suspensions, 1)
        waiting_since = max(self._started_at, process.resumed_at, self._tracker.responded_at)
        return is_over and now - waiting_since >= self._tracker.config.response_timeout_ms / 1000
