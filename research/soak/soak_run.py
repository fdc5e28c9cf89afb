"""SoakRun: one run of the soak: a stream that is written to and resharded, a service with faults, and a job that is restarted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from recordpublisher.local import Account, FaultKind
from recordpublisher.local.dispatcher import OPERATIONS
from recordpublisher.local.shard import hash_of
from recordpublisher.local.stream import merge, split
from recordpublisher.publishers.aggregation.kpl_format import encode_aggregate
from recordpublisher.publishers.clock import Clock

from .checking_sink import CheckingSink, DeliveryCheck, SinkStalls
from .job import JobSettings, MakeTransport, RunningJob
from .plan import JobRun, Plan
from fakes.fetcher_over_transport import STREAM

COMPLETION_SECONDS = 150.0
"""Seconds after the last fault within which every record must have arrived."""
KEYS = 12


class SoakRun:
    """Owns the account, the producer and the delivery check of one plan."""

    def __init__(
        self, plan: Plan, account: Account, clock: Clock, make_transport: MakeTransport, tolerance: float
    ) -> None:
        self._plan = plan
        self._account = account
        self._clock = clock
        self._rng = random.Random(plan.seed + 1)
        self._delivery = DeliveryCheck(keys_have_order=not plan.switches)
        self._stalls = SinkStalls(clock, plan.stalls)
        stream = account.create_stream(STREAM, plan.shards)
        stream.mode = "ON_DEMAND"  # needed for the record distribution only
        self._job_settings = JobSettings(
            properties={
                "aws.region": "us-east-1",
                "flink.stream.initpos": plan.initial_position,
                "flink.shard.getrecords.intervalmillis": plan.interval_ms,
                "flink.shard.discovery.intervalmillis": plan.discovery_ms,
                "flink.stream.efo.consumername": "soak",
                # Six random faults in a row, with nothing between, end a run by the default of 5: that is chance, and no finding.
                "flink.shard.subscribetoshard.maxretries": 10,
                "flink.shard.queue.records": plan.queue_records,
            },
            stream=stream.arn if plan.by_arn else STREAM,
            clock=clock,
            make_transport=make_transport,
            make_sink=lambda: CheckingSink(self._delivery, self._stalls),
            tolerance=tolerance,
        )

    async def run(self) -> Counter[FaultKind]:
        """Run the plan; returns the applied faults by kind. Raises: AssertionError, and the error of the job."""
        random.seed(self._plan.seed)  # the jitter of the library's own backoff
        self._account.faults.start_random(self._plan.rules, self._plan.seed)
        job = await self._start_job(self._plan.job_runs[0], [])
        await asyncio.sleep(1.1)  # LATEST is rounded down to a whole second
        stream_changes = asyncio.create_task(self._run_stream())
        try:
            for job_run in self._plan.job_runs[1:]:
                job = await self._restart_job(job, job_run)
            return await self._finish_job(job, stream_changes)
        finally:
            stream_changes.cancel()
            await asyncio.gather(stream_changes, return_exceptions=True)

    async def _finish_job(self, job: RunningJob, stream_changes: asyncio.Task[Any]) -> Counter[FaultKind]:
        await self._wait_until(job, stream_changes.done, self._plan.seconds * 3)
        if not job.has_failed:
            await stream_changes
        counts = self._account.faults.stop_random()
        await self._wait_until(job, lambda: self._delivery.is_complete, COMPLETION_SECONDS)
        await asyncio.sleep(7)  # time for duplicates to arrive
        await job.end()
        assert self._delivery.is_complete, f"lost: {self._delivery.missing()}"
        return counts

    async def _restart_job(self, job: RunningJob, job_run: JobRun) -> RunningJob:
        await self._wait_until(job, lambda: False, job_run.seconds)
        snapshots = await job.end()
        await asyncio.sleep(1.1)
        return await self._start_job(job_run, snapshots)

    async def _start_job(self, job_run: JobRun, restore: list[dict[str, Any]]) -> RunningJob:
        job = RunningJob(job_run, self._job_settings, restore)
        try:
            await job.start()
        except BaseException:
            await job.close()
            raise
        return job

    async def _wait_until(self, job: RunningJob, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait until `is_done`, at most `seconds` without the stalls of the sink. A failed job ends the wait."""
        until = self._clock.monotonic() + seconds
        while not is_done() and not job.has_failed and self._clock.monotonic() < until:
            await asyncio.sleep(0.5)
            until += 0.5 * self._stalls.is_on

    # --- the stream -----------------------------------------------------------------------------------------------------------

    async def _run_stream(self) -> None:
        changes = [
            *(self._reshard(at) for at in self._plan.reshards),
            *(self._switch(at) for at in self._plan.switches),
        ]
        await asyncio.gather(self._produce(), *changes)

    async def _produce(self) -> None:
        """PutRecords in small batches of different keys; refused records are put again before the next ones of their keys."""
        left = self._plan.records
        while left > 0:
            await asyncio.sleep(self._rng.expovariate(1.0) * self._plan.seconds / 60)
            keys = self._rng.sample(range(KEYS), min(left, self._rng.randint(1, KEYS)))
            left -= len(keys)
            rows = []
            for key in keys:
                text = f"{key}:{len(self._delivery.produced[str(key)])}:".encode()
                rows.append((str(key), text + self._rng.randbytes(self._rng.randint(0, self._plan.payload))))
                self._delivery.produced[str(key)].append(rows[-1][1])
            while rows:
                rows = self._put_aggregates(rows) if self._plan.switches else self._put_records(rows)
                if rows:
                    await asyncio.sleep(0.2)

    def _put_records(self, rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        body = {"StreamName": STREAM, "Records": [{"Data": data, "PartitionKey": key} for key, data in rows]}
        response = msgspec.json.decode(OPERATIONS["PutRecords"](self._account, msgspec.json.encode(body)))
        return [row for row, result in zip(rows, response["Records"], strict=True) if "ErrorCode" in result]

    def _put_aggregates(self, rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """As `_put_records`, with one aggregate for each shard's range; AUTO places it anywhere. Returns the rows that were refused."""
        stream = self._account.find(STREAM)
        groups: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
        for key, data in rows:
            groups[stream.shard_for(hash_of(key)).id].append((key, data))
        first_rows = {}
        for group in groups.values():
            aggregate = encode_aggregate([(key, None, data) for key, data in group])
            first_rows[group[0][0], aggregate] = group
        return [row for refused in self._put_records(list(first_rows)) for row in first_rows[refused]]

    async def _switch(self, at: float) -> None:
        await asyncio.sleep(at)
        stream = self._account.find(STREAM)
        wanted = "AUTO" if stream.distribution == "USER_PARTITION_KEY" else "USER_PARTITION_KEY"
        body = {"StreamARN": stream.arn, "RecordDistributionStrategy": wanted}
        OPERATIONS["UpdateStreamRecordDistributionStrategy"](self._account, msgspec.json.encode(body))

    async def _reshard(self, at: float) -> None:
        await asyncio.sleep(at)
        stream = self._account.find(STREAM)
        shards = stream.open_shards
        if len(shards) > 1 and self._rng.random() < 0.45:
            first = self._rng.randrange(len(shards) - 1)
            merge(stream, shards[first], shards[first + 1])
        elif len(shards) < 6:
            shard = self._rng.choice(shards)
            span = shard.hash_range
            split(stream, shard, (span.start + span.end) // 2)
