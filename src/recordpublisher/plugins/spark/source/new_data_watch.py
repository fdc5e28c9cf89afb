"""Polls quiet shards from the driver, so that no batch needs to run while no record arrives."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from enum import Enum

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult, make_publisher
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.polling_properties import ADAPTIVE_READS, GETRECORDS_INTERVAL, GETRECORDS_MAX
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..outages import is_outage
from ..python_worker import WorkerLoop

LOG = logging.getLogger("recordpublisher.spark")
MS_BETWEEN_CALLS = 10
"""Shortest time between two calls of a watch (ms), whatever the number of shards."""
SHORTEST_INTERVAL_MS = 200
"""Shortest time between two reads of a shard (ms). The service accepts five reads of a shard in a second."""
ANSWERS_SECONDS = 1.0
"""How long before its end a look (one read of every watched shard) has made all its calls, so that the responses arrive in time."""
MOST_SHARDS = 300
"""How many shards a look can read in the time of one call of Spark."""


class LookResult(Enum):
    """The result of a look, which is one read of every watched shard."""

    FOUND = "a record, the end of a shard, or an error"
    NOTHING = "every shard was at its tip"
    LATE = "not every shard has answered in time, and the next look may be in time"
    PARTIAL = "there are too many shards to ask all of them in time"


def watch_properties(properties: Properties, probe_ms: int) -> Properties:
    """Return the properties for the reads of the watch for new data. Each read brings one record. `NewDataWatch` decides when to read.

    - `probe_ms`: how often the watch reads a stream (ms). It limits the shortest time between two reads of a shard.
    """
    interval = min(SHORTEST_INTERVAL_MS, probe_ms)
    return properties.merged({GETRECORDS_MAX.key: 1, ADAPTIVE_READS.key: False, GETRECORDS_INTERVAL.key: interval})


def seconds_between_shards(shards: int, seconds: float, pause: float) -> float:
    """Return the time between the reads of two shards in a look (one read of every shard).

    - `seconds`: how long the look may take. The last read begins early enough for its response.
    - `pause`: seconds over which the reads are spread. A record that arrives during this time is then found before its end.

    At most a hundred shards are read in a second.
    """
    shortest = MS_BETWEEN_CALLS / 1000
    return max(shortest, min(pause, seconds - ANSWERS_SECONDS) / max(1, shards))


def has_new_data(batch: RecordBatch) -> bool:
    """Return whether a response shows something new: any record, or the children of a shard that has ended."""
    return bool(batch.records or batch.child_shards)


class NewDataWatch:
    """Watches shards for new data. A first record, the end of a shard, or an error ends the watch.

    Every shard is read once to its tip when `look` is called. Nothing is read at other times. An object serves one watch: call `begin`,
    `look` and `stop` one after the other. The reads run on `loop`.

    - `factory`: makes the publishers. The caller closes it.
    - `tip_ms`: a dict that receives, by `Shard.key`, the time when a read last found nothing new (epoch ms).
    """

    def __init__(self, factory: RecordPublisherFactory, loop: WorkerLoop, clock: Clock, tip_ms: dict[str, int]) -> None:
        self._factory = factory
        self._loop = loop
        self._clock, self._tip_ms = clock, tip_ms
        self._is_over = asyncio.Event()
        self.found = threading.Event()
        self._places: dict[Shard, int] = {}
        # The following fields are changed only on the loop.
        self._number = 0
        self._spacing = 0.0
        self._number_of_read: dict[Shard, int] = {}
        self._unseen: set[Shard] = set()
        self._begin_look = asyncio.Event()
        self._end_look = threading.Event()

    def begin(self, shards: Mapping[Shard, ShardState]) -> None:
        """Start to watch in the background. Nothing is read before the first call of `look`."""
        self._places = {shard: place for place, shard in enumerate(shards)}
        self._loop.run_in_background(self._watch(dict(shards)))

    def look(self, seconds: float, pause: float = 0.0) -> LookResult:
        """Read every shard once, with reads that begin after this call. Return within `seconds`.

        - `pause`: seconds over which the reads are spread. It is shortened if the reads would end too late.
        """
        end = threading.Event()
        self._loop.run_in_background(self._start_look(end, seconds_between_shards(len(self._places), seconds, pause)))
        has_ended = end.wait(seconds)
        if self.found.is_set():
            return LookResult.FOUND
        if has_ended:
            return LookResult.NOTHING
        return LookResult.LATE if len(self._places) <= MOST_SHARDS else LookResult.PARTIAL

    def stop(self) -> None:
        """End the watch, without waiting for its reads."""
        self._loop.run_in_background(self._end())

    async def _start_look(self, end: threading.Event, spacing: float) -> None:
        self._number += 1
        self._spacing = spacing
        self._unseen, self._end_look = set(self._places), end
        self._begin_look.set()
        self._begin_look = asyncio.Event()
        if not self._unseen or self._is_over.is_set():
            end.set()

    async def _watch(self, shards: dict[Shard, ShardState]) -> None:
        readers = [asyncio.create_task(self._read(shard, state)) for shard, state in shards.items()]
        try:
            await self._is_over.wait()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _end(self) -> None:
        self._is_over.set()

    async def _read(self, shard: Shard, state: ShardState) -> None:
        try:
            await self._wait_for_look(shard)
            publisher = await make_publisher(self._factory, shard, state.starting_position(False), ShardMetrics())
            while await publisher.run_observed(self._take) is RunResult.INCOMPLETE and not self._is_over.is_set():
                pass
        except RecordPublisherError as error:
            # For an outage INFO is enough: the next batch fails too, and the planner warns once.
            level = logging.INFO if is_outage(error) else logging.WARNING
            LOG.log(
                level, "%s cannot be watched for new records; the next batch reads it instead: %s", shard.key, error
            )
        except Exception:
            LOG.exception("%s cannot be watched for new records; the next batch reads it instead", shard.key)
        self._finish()

    async def _take(self, batch: RecordBatch) -> None:
        """Handle the response of a read. After an empty response before the shard's tip, the read continues."""
        shard = batch.shard
        if has_new_data(batch):
            self._finish()
            await self._is_over.wait()
        elif batch.millis_behind_latest == 0:
            self._tip_ms[shard.key] = self._clock.now_ms()
            if self._number_of_read[shard] == self._number:  # Otherwise the read began before this look did.
                self._unseen.discard(shard)
                if not self._unseen:
                    self._end_look.set()
            await self._wait_for_look(shard)

    async def _wait_for_look(self, shard: Shard) -> None:
        """Wait until `look` is called again, and then for the shard's turn among the reads of that call."""
        while self._number_of_read.get(shard, 0) == self._number:
            await self._begin_look.wait()
        await asyncio.sleep((self._places[shard] + 1) * self._spacing)
        self._number_of_read[shard] = self._number

    def _finish(self) -> None:
        self.found.set()
        self._end_look.set()
        self._is_over.set()
