"""A process of a fixed number of subtasks, over the store and the source of a group of processes."""

from __future__ import annotations

from recordpublisher.fetcher.assembly import build_fetcher
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore, SubtaskCheckpoints

from .elastic_processes import ConnectedStore, ElasticProcesses, FetcherProcess, TimedSink
from fakes.scripted_source import fetcher_dependencies


class StaticProcess(FetcherProcess):
    """Owns one subtask and its run."""

    def __init__(self, group: ElasticProcesses, subtask: int = 0, parallelism: int = 1) -> None:
        states = SnapshotStore(ConnectedStore(group.store))
        self.fetcher = build_fetcher(
            fetcher_dependencies(
                group.source,
                TimedSink(group.rows, 0.0),
                {"flink.state.checkpoint.interval": 5_000},
                checkpoints=SubtaskCheckpoints(states, subtask, parallelism),
                subtask=subtask,
                parallelism=parallelism,
            )
        )
