"""Makes the calls of a query's driver to Kinesis, and decides whether a listing may show new shards (S2, S3)."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from recordpublisher.fetcher.checkpoints.shard_starts import list_restored
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.monitoring.alarm_monitor import RetentionPeriods
from recordpublisher.fetcher.shards.discovery import MissingShards, ShardExists
from recordpublisher.fetcher.shards.lineage import parent_keys
from recordpublisher.fetcher.shards.retention_check import RetentionCheck, RetentionGap
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.host.build_from_properties import build_source, checked_publisher_class
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.runtime.shard_lister import ShardLister
from recordpublisher.plugins.runtime.stream_names import stream_names
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.job_properties import DISCOVERY_INTERVAL
from recordpublisher.publishers.properties.polling_properties import GETRECORDS_INTERVAL
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.shards import Shard, stream_name, stream_of

from ..options.spark_options import SparkOptions
from ..outages import with_short_retries
from ..python_worker import worker_loop
from .new_data_watch import LookResult, NewDataWatch, watch_properties

LOG = logging.getLogger("recordpublisher.spark")
OLD_LISTING_SECONDS = 5.0
"""How long to wait before a stream is listed again, if its last listing was not complete (seconds)."""


class KinesisService:
    """Owns the driver's view of its streams: the last complete listing of each, the consumers' ARNs, and the watch for new data.

    Listings are renewed in the background. Blocking calls are made when a query starts, when an AvailableNow run would end, and when a
    shard of a quiet stream has ended and its children are not known. They have their own retries. If the retries fail in an outage,
    `PatientPlanner` waits for the service. Every other error ends the query.
    """

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._names = stream_names(options.streams)
        # The driver of a fan-out job polls too. So it needs no AWS SDK, whose import takes 0.5 s of a start.
        polls = {RECORD_PUBLISHER.key: options.polling_publisher}
        self._properties = properties = with_short_retries(options.properties).merged(polls)
        self._factory = _publisher_factory(options.polling_publisher, properties)
        self._lister = lister = ShardLister(self._factory, properties, self._names, SystemClock())
        self._retention = RetentionCheck(
            lister.oldest_retained_ms, lister.oldest_record, self._factory.order_of, SystemClock()
        )
        self._retention_periods = RetentionPeriods(lister.retention_ms, tuple(self._names))
        self._check = ListingCompleteness(lister.shard_exists)
        self._listed: dict[str, list[Shard]] = {}
        self._old: set[str] = set()
        self._arns: Mapping[str, str] | None = None
        self._discovers = False
        self._undiscovered: set[str] = set()
        self._watch: NewDataWatch | None = None
        self._tip_ms: dict[str, int] = {}

    def list_shards(self, stream: str) -> list[Shard]:
        """List the shards of a stream now, and return them. Failed calls are retried.

        Raises: StreamNotFoundError if the stream does not exist; KinesisError if the call fails.
        """
        return worker_loop().run(self._list(stream_name(stream)))

    def list_restored(
        self, streams: Collection[str], restored: RestoredState
    ) -> tuple[Sequence[Shard], frozenset[str]]:
        """List the shards of `streams` (names). Return them, and the keys of the `restored` shards that are not listed and have expired."""
        missing = MissingShards(self._lister.shard_exists)

        async def list_all() -> list[Shard]:
            return [shard for name in streams for shard in await self._list(name)]

        listed = worker_loop().run(list_restored(list_all, streams, restored, missing))
        return listed, frozenset(filter(missing.is_expired, restored.shards))

    def server_time_ms(self, stream: str) -> int:
        """Return the service's time (epoch ms)."""
        return worker_loop().run(self._lister.server_time_ms(stream_name(stream)))

    def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time of the oldest record that the stream may still have (epoch ms), or None if it is not known."""
        return worker_loop().run(self._retention.oldest_retained_ms(stream_name(stream)))

    def retention_ms(self, stream: str) -> int | None:
        """Return how long a stream (name) keeps its records (ms), or None while that is not known.

        It never blocks, because the value is requested in the background.
        """
        return self._retention_periods.of(stream)

    def gap_after(self, shard: Shard, state: ShardState, seen_ms: int) -> RetentionGap:
        """Return whether records of the shard after `state` have expired.

        - `seen_ms`: the arrival of the last record read, or the last read at the shard's tip, whichever is later (epoch ms).
        """
        return worker_loop().run(self._retention.gap_after(shard, state.position, seen_ms))

    def consumer_arns(self) -> Mapping[str, str]:
        """Return the ARN of the fan-out consumer of each stream, by property key. Return {} if the job polls.

        The first call registers the consumers. They are never deregistered, because Spark does not report that a query will not run again.
        """
        if self._arns is None:
            from ..efo_consumers import register_consumers

            options = self._options
            self._arns = register_consumers(options.streams, self._properties) if options.is_fan_out else {}
        return self._arns

    def discovered_shards(self, known: Collection[str]) -> list[Shard]:
        """Return the shards of the newest complete listing of each stream. Never blocks or raises an error.

        The first call starts the listing in the background.

        - `known`: the keys of the current offset's shards. A listing that lacks one of them is not complete.
        """
        self._check.require(known)
        if not self._discovers:
            self._discovers = True
            worker_loop().run_in_background(self._discover())
            worker_loop().run_in_background(self._retention_periods.run())
        return [shard for shards in list(self._listed.values()) for shard in shards]

    def watch(self, shards: Mapping[Shard, ShardState]) -> None:
        """Begin to watch in the background (`NewDataWatch`) for new records after these states.

        If a watch is running, it continues unchanged. A watch polls even in a fan-out job, because the subscription of the next batch would
        end a subscription of the watch.
        """
        if self._watch is not None:
            return
        publisher = self._options.polling_publisher
        properties = watch_properties(self._properties, self._options.probe_ms)
        key = ("watch", publisher, properties.value(GETRECORDS_INTERVAL))
        self._watch = NewDataWatch(
            worker_loop().cached(key, lambda: _publisher_factory(publisher, properties)),
            worker_loop(),
            SystemClock(),
            self._tip_ms,
        )
        self._watch.begin(shards)

    def has_new_data(self) -> bool:
        """Return whether the watch that `watch` began has found a new record, a shard that has ended, or an error. Never blocks."""
        return self._watch is not None and self._watch.found.is_set()

    def look(self, seconds: float, pause: float = 0.0) -> LookResult:
        """Read every shard of the watch for new data now, as `NewDataWatch.look` does. Return `LookResult.LATE` if no watch is running."""
        return LookResult.LATE if self._watch is None else self._watch.look(seconds, pause)

    def tip_ms(self, key: str) -> int | None:
        """Return when a watch for new data last read a shard to its tip and found nothing new (epoch ms), or None if it never did.

        `key`: `Shard.key`.
        """
        return self._tip_ms.get(key)

    def stop_watching(self) -> None:
        """End the watch for new data, if one is running."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def close(self) -> None:
        """Close the clients. Call it only if `discovered_shards` was never called, because its listing would continue in the background."""
        worker_loop().run(self._lister.close())
        worker_loop().run(self._factory.close())

    async def _discover(self) -> None:
        """List all streams periodically. An error does not end the listing.

        If the interval is negative, list them only once, and again while a listing is not complete.
        """
        interval = self._options.properties.value(DISCOVERY_INTERVAL) / 1000
        while True:
            for name in self._names:
                await self._list_again(name)
            if interval < 0 and not self._old:
                return
            await asyncio.sleep(OLD_LISTING_SECONDS if self._old else interval)

    async def _list(self, name: str) -> list[Shard]:
        listed = await self._lister.list_shards(name)
        if await self._check.is_complete(name, listed):
            self._listed[name] = listed
            self._old.discard(name)
        else:
            self._old.add(name)
        return listed

    async def _list_again(self, name: str) -> None:
        try:
            await self._list(name)
            self._undiscovered.discard(name)
        except RecordPublisherError as error:
            LOG.log(
                logging.INFO if name in self._undiscovered else logging.WARNING,
                "listing %s failed and is tried again; until it works, new shards are found only when their parents end: %s",
                name,
                error,
            )
            self._undiscovered.add(name)
        except Exception:
            LOG.exception("listing %s failed with an unexpected error, and is tried again", name)


def _publisher_factory(publisher: str, properties: Properties) -> RecordPublisherFactory:
    registry = load_registry()
    return build_source(
        registry, properties, checked_publisher_class(registry, properties, "Spark", publisher), publisher
    )


# --- whether a listing is complete (S2, S3) -------------------------------------------------------------------------------------------


class ListingCompleteness:
    """Decides whether a listing may show new shards. Owns the facts about shards that the newest listing of each stream lacks.

    An old listing may show a shard that was read and left the offset, and lack the descendants that prove it. Therefore a listing is not
    used if it lacks a shard of the offset, or the parent of a listed shard. Missing shards that have expired do not count.
    """

    def __init__(self, exists: ShardExists) -> None:
        self._missing = MissingShards(exists)
        self._known: Collection[str] = ()

    def require(self, known: Collection[str]) -> None:
        """Set the shards of the current offset, by `Shard.key`. A complete listing must have them."""
        self._known = known

    async def is_complete(self, stream: str, listed: Sequence[Shard]) -> bool:
        """Return whether a new listing of the stream lacks only shards that have expired."""
        parents = {parent for shard in listed for parent in parent_keys(shard)}
        known = {key for key in self._known if stream_of(key) == stream}
        lacking = (parents | known) - {shard.key for shard in listed}
        await self._missing.check(lacking, (stream,))
        return all(map(self._missing.is_expired, lacking))
