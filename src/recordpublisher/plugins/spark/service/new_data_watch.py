"""NewDataWatch: polls quiet shards from the driver, so that no batches run while nothing arrives."""

import asyncio
import logging
import threading
from collections.abc import Mapping

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.polling import ADAPTIVE_READS, GETRECORDS_INTERVAL, GETRECORDS_MAX
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..outages import is_outage
from ..process.python_worker import WorkerLoop

LOG = logging.getLogger("recordpublisher.spark")
MS_BETWEEN_CALLS = 10
"""The watch makes at most a hundred calls a second, whatever the number of shards."""
LONGEST_INTERVAL_MS = 240_000
"""An iterator lives for five minutes."""


def watch_properties(properties: Properties, shards: int, probe_ms: int) -> Properties:
    """The properties of the watch: it reads one record at a time, each shard once in `probe_ms`, or less often when there are many."""
    interval = min(LONGEST_INTERVAL_MS, max(probe_ms, MS_BETWEEN_CALLS * shards))
    return properties.merged({GETRECORDS_MAX.key: 1, ADAPTIVE_READS.key: False, GETRECORDS_INTERVAL.key: interval})


def has_new_data(batch: RecordBatch) -> bool:
    """What counts as new: any record."""
    return bool(batch.records)


class NewDataWatch:
    """Reads from given states until the first record, the end of a shard, or an error. Each of them ends the watch.

    `tip_ms` is told, by `Shard.key`, when a read last found nothing new (epoch ms).
    An object is used for one watch; the factory belongs to the caller. Call `begin` and `stop` in one thread; the loop does the reading.
    """

    def __init__(self, factory: RecordPublisherFactory, loop: WorkerLoop, clock: Clock, tip_ms: dict[str, int]) -> None:
        self._factory = factory
        self._loop = loop
        self._clock, self._tip_ms = clock, tip_ms
        self._is_over = asyncio.Event()
        self.found = threading.Event()
        self._first_look = threading.Event()
        self._unseen: set[Shard] = set()

    def begin(self, shards: Mapping[Shard, ShardState]) -> None:
        """Watch in the background."""
        self._unseen = set(shards)
        self._loop.start(self._watch(dict(shards)))

    def finds_nothing(self, seconds: float) -> bool:
        """Wait for the first response of every shard; returns whether all came within `seconds`, and none of them ended the watch."""
        return self._first_look.wait(seconds) and not self.found.is_set()

    def stop(self) -> None:
        """End the watch; returns at once."""
        self._loop.start(self._end())

    async def _watch(self, shards: dict[Shard, ShardState]) -> None:
        readers = [
            asyncio.create_task(self._read(shard, state, place * MS_BETWEEN_CALLS / 1000))
            for place, (shard, state) in enumerate(shards.items())
        ]
        try:
            await self._is_over.wait()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _end(self) -> None:
        self._is_over.set()

    async def _read(self, shard: Shard, state: ShardState, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            publisher = await self._factory.create(shard, state.starting_position(False), ShardMetrics())
            while await publisher.run_observed(self._take) is RunResult.INCOMPLETE and not self._is_over.is_set():
                pass
        except RecordPublisherError as error:
            # the batch shows an outage, and the planner warns of it once
            level = logging.INFO if is_outage(error) else logging.WARNING
            LOG.log(level, "%s cannot be watched and is read by a batch instead: %s", shard.key, error)
        except Exception:
            LOG.exception("%s cannot be watched and is read by a batch instead", shard.key)
        self._finish()

    async def _take(self, batch: RecordBatch) -> None:
        if has_new_data(batch):
            self._finish()
            await self._is_over.wait()
        elif batch.millis_behind_latest == 0:
            self._tip_ms[batch.shard.key] = self._clock.now_ms()
        self._unseen.discard(batch.shard)
        if not self._unseen:
            self._first_look.set()

    def _finish(self) -> None:
        self.found.set()
        self._first_look.set()
        self._is_over.set()
