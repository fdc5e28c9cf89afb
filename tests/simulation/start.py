"""One start of a simulated job that runs alone, whose checkpoints are kept, so that an older one can be restored."""

from __future__ import annotations

from collections.abc import Callable

from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.watermarks import OwnWatermark

from .checked_process import CheckedProcess
from .checkpoint_history import CheckpointHistory, SimulatedAlone
from .rule_checker import RuleChecker
from .schedule import JobRun
from .simulated_stream import SimulatedStream
from .simulator import Simulator


class Start(CheckedProcess):
    """Stores its checkpoints in the history of the job."""

    def __init__(
        self,
        simulator: Simulator,
        stream: SimulatedStream,
        job_run: JobRun,
        checker: RuleChecker,
        checkpoints: CheckpointHistory,
        seed: int,
        listed_streams: Callable[[], tuple[str, ...]],
    ) -> None:
        self._checkpoints = checkpoints
        super().__init__(0, simulator, stream, job_run, checker, seed, listed_streams)

    def _build(self) -> ShardFetcher:
        return build_fetcher(self._parts(OwnWatermark(), alone=SimulatedAlone(self._checkpoints, self.process)))
