"""A process that runs a job alone, over the store and the source of a group of processes."""

from __future__ import annotations

import random
from dataclasses import replace

from recordpublisher.fetcher.elastic.alone_worker import AloneWorker
from recordpublisher.fetcher.elastic.job_storage import JobStorage, group_job_of
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.shard_fetcher import build_fetcher
from recordpublisher.fetcher.sink import Sink

from .elastic_processes import DURATION, ElasticProcesses, FetcherProcess, TimedSink
from fakes.scripted_source import fetcher_dependencies


class AloneProcess(FetcherProcess):
    """Owns one fetcher, its connection to the store, and its run."""

    def __init__(self, group: ElasticProcesses, sink: Sink | None = None, **properties: object) -> None:
        self.store = group.connect()
        self.sink = sink or TimedSink(group.rows, 0.0)
        given = {"flink.state.checkpoint.interval": 5_000, **properties}
        dependencies = fetcher_dependencies(group.source, self.sink, given)
        chance = random.Random(group._chance.random())
        place = JobStorage(self.store, LeaseSettings(DURATION), chance=chance)
        job = group_job_of(dependencies.streams, self.sink)
        self.alone = AloneWorker(place, job, self.sink, dependencies.clock)
        self.fetcher = build_fetcher(replace(dependencies, alone=self.alone, check_owner=self.alone.check_owner))
