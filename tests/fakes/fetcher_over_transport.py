"""A fetcher with the real publishers and the real client, over any transport."""

from __future__ import annotations

from functools import cache
from typing import Any

from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.dependencies import FetcherDependencies
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.sink import Sink
from recordpublisher.fetcher.watermarks import OwnWatermark
from recordpublisher.plugins.archive.archive import Catalogue
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.plugins.runtime.argument_checks import batch_decorator_factory
from recordpublisher.plugins.runtime.shard_lister import ShardLister
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.ports import Transport
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ARCHIVE_LIVE, RECORD_PUBLISHER

STREAM = "orders"


@cache
def registry() -> Registry:
    return load_registry()


def fetcher_over(
    transport: Transport,
    given: Properties,
    sink: Sink,
    clock: Clock,
    *,
    stream: str = STREAM,
    ref_counts: ConsumerRefCounts | None = None,
    archive: Catalogue | None = None,
    **more: Any,
) -> ShardFetcher:
    """A fetcher built as in plugins/runtime/job_assembly.py, with the real client over any transport."""
    client = KinesisClient(given, [stream], transport=transport)
    factory: Any
    publisher = given.value(RECORD_PUBLISHER)
    if (given.value(ARCHIVE_LIVE) if publisher == "ARCHIVE" else publisher) == "EFO":
        factory = FanOutRecordPublisherFactory(
            given, ports=client, clock=clock, ref_counts=ref_counts or ConsumerRefCounts()
        )
    else:
        factory = PollingRecordPublisherFactory(given, service=client, clock=clock)
    lister = ShardLister(factory, given, {STREAM: stream}, clock, client)
    if publisher == "ARCHIVE":
        factory = ArchiveFactory(given, live=factory, lister=lister, catalogue=archive, clock=clock)
        lister = ShardLister(factory, given, {STREAM: stream}, clock, client)
    retention = RetentionCheck(lister.oldest_retained_ms, lister.oldest_record, factory.order_of, clock)
    settings = FetcherSettings.of(given)
    return build_fetcher(
        FetcherDependencies(
            factory=factory,
            discovery=ShardDiscovery(lister, [STREAM], settings.discovery_interval_ms),
            sink=sink,
            tracker=OwnWatermark(),
            decorator_for=batch_decorator_factory(registry(), given),
            settings=settings,
            clock=clock,
            starts=Starts(initial_position(given)),
            pin_latest=lister.server_time_ms,
            retention=None if factory.finds_gaps else retention,
            shard_exists=lister.shard_exists,
            is_endless=lister.is_endless,
            use_continuations=factory.resumes_by_continuation,
            **more,
        )
    )
