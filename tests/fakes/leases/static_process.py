"""A process of a fixed number of subtasks, over the store and the source of a group of processes."""

from __future__ import annotations

from recordpublisher.fetcher.checkpoints.state_store import SubtaskCheckpoints
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.subtask_fetcher import SubtaskFetcher
from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore
from recordpublisher.testing import VirtualClock

from .elastic_processes import DURATION, ConnectedStore, ElasticProcesses, FetcherProcess, TimedSink
from fakes.scripted_source import fetcher_dependencies


class StaticProcess(FetcherProcess):
    """Owns one subtask and its run. `takeover`: it may take over from a group."""

    def __init__(
        self, group: ElasticProcesses, subtask: int = 0, parallelism: int = 1, *, takeover: bool = False
    ) -> None:
        clock = VirtualClock()
        settings = LeaseSettings(DURATION) if takeover else None
        states = ConditionalStateStore(ConnectedStore(group.store), settings, clock)
        self.fetcher = SubtaskFetcher(
            fetcher_dependencies(
                group.source,
                TimedSink(group.rows, 0.0),
                {"flink.state.checkpoint.interval": 5_000},
                checkpoints=SubtaskCheckpoints(states, subtask, parallelism),
                subtask=subtask,
                parallelism=parallelism,
            )
        )
