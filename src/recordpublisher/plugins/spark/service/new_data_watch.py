"""Whether anything new came to shards that were at their tips: watched from the driver, so that a quiet stream costs no batches."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

LOG = logging.getLogger("recordpublisher.spark")
MS_BETWEEN_CALLS = 10
"""The watch makes at most a hundred calls a second, whatever the number of shards."""
LONGEST_INTERVAL_MS = 240_000
"""An iterator lives for five minutes."""


def watch_properties(properties: Properties, shards: int, probe_ms: int) -> Properties:
    """How the watch reads: one record is news enough, and every shard has its turn once in `probe_ms` or, of many, more seldom."""
    interval = min(LONGEST_INTERVAL_MS, max(probe_ms, MS_BETWEEN_CALLS * shards))
    return properties.merged(
        {table.GETRECORDS_MAX.key: 1, table.ADAPTIVE_READS.key: False, table.GETRECORDS_INTERVAL.key: interval}
    )


class Background(Protocol):
    """Runs coroutines on a loop of another thread."""

    def start(self, work: Coroutine[Any, Any, Any]) -> object:
        """Run it, without waiting."""
        ...


class NewDataWatch:
    """Reads on from given states until the first record, the end of a shard, or an error: all of them are news, and end the watch.

    Made for one watch; the factory is lent. `begin` and `stop` are called by one thread, the reading is done on the loop.
    """

    def __init__(self, factory: RecordPublisherFactory, loop: Background) -> None:
        self._factory = factory
        self._loop = loop
        self._over = asyncio.Event()
        self.news = threading.Event()

    def begin(self, shards: Mapping[Shard, ShardState]) -> None:
        """Watch in the background."""
        self._loop.start(self._watch(dict(shards)))

    def stop(self) -> None:
        """End the watch; returns at once."""
        self._loop.start(self._end())

    async def _watch(self, shards: dict[Shard, ShardState]) -> None:
        readers = [
            asyncio.create_task(self._read(shard, state, place * MS_BETWEEN_CALLS / 1000))
            for place, (shard, state) in enumerate(shards.items())
        ]
        try:
            await self._over.wait()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _end(self) -> None:
        self._over.set()

    async def _read(self, shard: Shard, state: ShardState, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            publisher = await self._factory.create(shard, state.starting_position(False), ShardMetrics())
            while await publisher.run_observed(self._take) is RunResult.INCOMPLETE and not self._over.is_set():
                pass
        except RecordPublisherError as error:
            LOG.warning("%s cannot be watched, a batch looks instead: %s", shard.key, error)
        except Exception:
            LOG.exception("%s cannot be watched, a batch looks instead", shard.key)
        self._tell()

    async def _take(self, batch: RecordBatch) -> None:
        if batch.records:
            self._tell()
            await self._over.wait()

    def _tell(self) -> None:
        self.news.set()
        self._over.set()
