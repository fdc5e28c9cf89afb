"""One run of the job under test: real publishers and a real fetcher over any transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shard_fetcher import ShardFetcher
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.kinesis.ports import Transport
from recordpublisher.publishers.properties.properties import Properties

from .checking_sink import CheckingSink
from .limit_checker import LimitChecker
from .plan import JobRun
from fakes.fetcher_over_transport import fetcher_over

MakeTransport = Callable[[], Transport]


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What all runs of a job have in common."""

    properties: dict[str, Any]
    stream: str
    """Name or ARN."""
    clock: Clock
    make_transport: MakeTransport
    make_sink: Callable[[], CheckingSink]
    tolerance: float


class RunningJob:
    """Owns the fetcher of one run."""

    def __init__(self, job_run: JobRun, job_settings: JobSettings, restore: list[dict[str, Any]]) -> None:
        self._job_run = job_run
        self._job_settings = job_settings
        self._ref_counts = ConsumerRefCounts()
        self.limit_checkers: list[LimitChecker] = []
        self._fetchers = [self._fetcher(restore)]
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        for fetcher in self._fetchers:
            await fetcher.open()
        self._tasks = [asyncio.create_task(fetcher.run_bounded(Bounds())) for fetcher in self._fetchers]

    @property
    def has_failed(self) -> bool:
        return any(task.done() for task in self._tasks)

    async def end(self) -> list[dict[str, Any]]:
        """End this run; returns the snapshots for the next one. Raises: the error of the job, or the violations."""
        for fetcher, task in zip(self._fetchers, self._tasks, strict=True):
            if self._job_run.crashes:
                task.cancel()
            else:
                fetcher.stop()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        snapshots = [json.loads(json.dumps(fetcher.snapshot())) for fetcher in self._fetchers]
        await self.close()
        for result in results:
            if isinstance(result, Exception):
                raise result
        violations = [violation for limit_checker in self.limit_checkers for violation in limit_checker.violations]
        assert not violations, violations[:3]
        return snapshots

    async def close(self) -> None:
        """Close everything. After a crash the fetchers are not closed: the consumer stays registered."""
        if not self._job_run.crashes:
            await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers))
        for limit_checker in self.limit_checkers:
            await limit_checker.close()

    def _fetcher(self, restore: list[dict[str, Any]]) -> ShardFetcher:
        job_settings, job_run = self._job_settings, self._job_run
        given = Properties({**job_settings.properties, "flink.stream.recordpublisher": job_run.publisher})
        limit_checker = LimitChecker(job_settings.make_transport(), job_settings.clock, job_settings.tolerance)
        self.limit_checkers.append(limit_checker)
        return fetcher_over(
            limit_checker,
            given,
            job_settings.make_sink(),
            job_settings.clock,
            stream=job_settings.stream,
            ref_counts=self._ref_counts,
            restore=tuple(restore),
        )
