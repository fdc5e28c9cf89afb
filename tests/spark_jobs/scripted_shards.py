"""A publisher plugin with simulated shards: five numbered records a second each, without a service."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import recordpublisher as rp

BEGAN = 1_700_000_000
PER_SECOND = 5
SHARDS = "SCRIPTED_SHARDS"
PAYLOAD = b"x" * 200


class ScriptedFactory(rp.RecordPublisherFactory):
    """As many shards as the environment variable gives."""

    def __init__(self, properties: rp.Properties) -> None:
        pass

    async def create(self, shard, starting_position, metrics):
        return ScriptedPublisher(shard, int(starting_position.sequence_number or there() - PER_SECOND - 1))

    async def discover(self, stream):
        return [rp.Shard(stream, f"shardId-{n:012}") for n in range(int(os.environ[SHARDS]))]


class ScriptedPublisher(rp.RecordPublisher):
    """Publishes the records that have arrived since the last batch, at most those of a second, and is at the tip."""

    def __init__(self, shard: rp.Shard, last: int) -> None:
        self._shard = shard
        self._last = last

    async def run(self, consumer):
        while True:
            numbers = range(max(self._last + 1, there() - PER_SECOND), there())
            records = [rp.UserRecord(PAYLOAD, str(n), BEGAN + n / PER_SECOND, f"key-{n}") for n in numbers]
            position = rp.SequenceNumber(records[-1].sequence_number) if records else None
            size = len(records) * len(PAYLOAD)
            answered = await consumer(rp.RecordBatch(self._shard, records, 0, position, raw_bytes=size))
            self._last = self._last if answered is None else int(answered.sequence)
            await asyncio.sleep(0.2)


def there() -> int:
    """The number of records that have arrived so far."""
    return int((time.time() - BEGAN) * PER_SECOND)


@rp.hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("SCRIPTED", ScriptedFactory)


def install(site: Path) -> None:
    """Make this module a plugin for every process that has `site` and this folder on its path."""
    info = site / "spark_scripted_shards-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spark-scripted-shards\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[recordpublisher]\nscripted = spark_jobs.scripted_shards\n")
