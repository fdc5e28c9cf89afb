"""One soak run: a stream that is written to and resharded, a service that fails, a job that is started again and again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from recordpublisher.local import Account, FaultKind
from recordpublisher.local.operations.table import OPERATIONS
from recordpublisher.local.streams.resharding import merge, split
from recordpublisher.publishers.clock import Clock

from .job import STREAM, MakeTransport, RunningJob, Stage
from .judge import JudgingSink, Ledger, Stalls
from .plan import Life, Plan

PATIENCE_SECONDS = 150.0
"""After the last disturbance everything must have arrived by then."""
KEYS = 12


class Run:
    """Owns the world of one plan: account, producer, ledger."""

    def __init__(
        self, plan: Plan, account: Account, clock: Clock, make_transport: MakeTransport, tolerance: float
    ) -> None:
        self._plan = plan
        self._account = account
        self._clock = clock
        self._dice = random.Random(plan.seed + 1)
        self._ledger = Ledger()
        self._stalls = Stalls(clock, plan.stalls)
        stream = account.create_stream(STREAM, plan.shards)
        self._stage = Stage(
            properties={
                "aws.region": "us-east-1",
                "flink.stream.initpos": plan.initial_position,
                "flink.shard.getrecords.intervalmillis": plan.interval_ms,
                "flink.shard.discovery.intervalmillis": plan.discovery_ms,
                "flink.stream.efo.consumername": "soak",
                "flink.shard.queue.records": plan.queue_records,
            },
            stream=stream.arn if plan.by_arn else STREAM,
            clock=clock,
            make_transport=make_transport,
            make_sink=lambda: JudgingSink(self._ledger, self._stalls),
            tolerance=tolerance,
        )

    async def play(self) -> Counter[FaultKind]:
        """Play the plan to its end; answers the faults that struck. Raises: AssertionError, and what the job failed with."""
        random.seed(self._plan.seed)  # the jitter of the library's own backoff
        self._account.faults.start_random(self._plan.rules, self._plan.seed)
        job = await self._started(self._plan.lives[0], [])
        await asyncio.sleep(1.1)  # LATEST is cut to a whole second
        world = asyncio.create_task(self._world())
        try:
            for life in self._plan.lives[1:]:
                job = await self._next_life(job, life)
            return await self._last_life(job, world)
        finally:
            world.cancel()
            await asyncio.gather(world, return_exceptions=True)

    async def _last_life(self, job: RunningJob, world: asyncio.Task[Any]) -> Counter[FaultKind]:
        await self._until(job, world.done, self._plan.seconds * 3)
        if not job.has_failed:
            await world
        counts = self._account.faults.stop_random()
        await self._until(job, lambda: self._ledger.is_complete, PATIENCE_SECONDS)
        await asyncio.sleep(7)  # what would come twice has time to come
        await job.end()
        assert self._ledger.is_complete, f"lost: {self._ledger.missing()}"
        return counts

    async def _next_life(self, job: RunningJob, life: Life) -> RunningJob:
        await self._until(job, lambda: False, life.seconds)
        snapshots = await job.end()
        await asyncio.sleep(1.1)
        return await self._started(life, snapshots)

    async def _started(self, life: Life, restore: list[dict[str, Any]]) -> RunningJob:
        job = RunningJob(life, self._stage, restore)
        try:
            await job.start()
        except BaseException:
            await job.close()
            raise
        return job

    async def _until(self, job: RunningJob, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait; a stall of the sink makes it longer, a failed job shorter."""
        until = self._clock.monotonic() + seconds
        while not is_done() and not job.has_failed and self._clock.monotonic() < until:
            await asyncio.sleep(0.5)
            until += 0.5 * self._stalls.is_on

    # --- the other side -----------------------------------------------------------------------------------------------------------

    async def _world(self) -> None:
        await asyncio.gather(self._produce(), *(self._reshard(at) for at in self._plan.reshards))

    async def _produce(self) -> None:
        """PutRecords in small batches of different keys; what is refused is put again before a key goes on."""
        left = self._plan.records
        while left > 0:
            await asyncio.sleep(self._dice.expovariate(1.0) * self._plan.seconds / 60)
            keys = self._dice.sample(range(KEYS), min(left, self._dice.randint(1, KEYS)))
            left -= len(keys)
            rows = []
            for key in keys:
                text = f"{key}:{len(self._ledger.produced[str(key)])}:".encode()
                rows.append((str(key), text + self._dice.randbytes(self._dice.randint(0, self._plan.payload))))
                self._ledger.produced[str(key)].append(rows[-1][1])
            while rows:
                rows = self._refused(rows)
                if rows:
                    await asyncio.sleep(0.2)

    def _refused(self, rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        body = {"StreamName": STREAM, "Records": [{"Data": data, "PartitionKey": key} for key, data in rows]}
        answer = msgspec.json.decode(OPERATIONS["PutRecords"](self._account, msgspec.json.encode(body)))
        return [row for row, result in zip(rows, answer["Records"], strict=True) if "ErrorCode" in result]

    async def _reshard(self, at: float) -> None:
        await asyncio.sleep(at)
        stream = self._account.find(STREAM)
        shards = stream.open_shards
        if len(shards) > 1 and self._dice.random() < 0.45:
            first = self._dice.randrange(len(shards) - 1)
            merge(stream, shards[first], shards[first + 1])
        elif len(shards) < 6:
            shard = self._dice.choice(shards)
            span = shard.hash_range
            split(stream, shard, (span.start + span.end) // 2)
