"""Builds the parts of a job from its arguments and properties. Only this module connects the layers of the package.

`build_job` builds a job that reads shards, and `build_queue_job` a job that reads a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from recordpublisher.consumer.deserialization import Deserializer, DeserializerArgument, StreamDeserializer
from recordpublisher.fetcher.alarms import AlarmListener
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots
from recordpublisher.fetcher.conditional_store import ConditionalStore, named_store
from recordpublisher.fetcher.dependencies import FetcherDependencies
from recordpublisher.fetcher.pipeline.checked_sink_calls import destination_of
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.shards.discovery import ShardDiscovery, StreamList
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.sink import CommittingSink, Sink, entry_store_of, stores_positions
from recordpublisher.fetcher.watermarks import OwnWatermark
from recordpublisher.publishers.base import QueueSource, RecordPublisherFactory, check_source
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import passed_initial_position
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.job_properties import (
    IDLE_INTERVAL,
    JOB_NAME,
    JOB_WORKERS,
    STATE_URI,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.user_code import PluginCall, notice_unawaited_calls
from recordpublisher.queues.job import QueueJob, QueueJobParts, QueueSettings

from ..host.build_from_properties import (
    build_dead_letter_sink,
    build_sink,
    build_source,
    build_store,
    check_places,
    check_properties,
    source_class,
)
from ..host.plugin_loading import warn_of_broken_plugins
from ..host.registry import Registry
from ..host.unread_settings import unread_at_start
from ..tracing.trace_context import traced_calls
from .argument_checks import (
    Assigner,
    batch_decorator_factory,
    check_function,
    check_sink,
    check_store,
    checked_for_archive,
    checked_for_no_archive,
    checked_snapshots,
    chosen_deserializer,
    value_type_made_by,
    value_types_made_by,
)
from .shard_lister import ShardLister
from .stream_names import StreamNames

if TYPE_CHECKING:
    from recordpublisher.fetcher.elastic.alone_worker import AloneWorker

log = logging.getLogger("recordpublisher.start")


def build_job(
    given: Properties,
    names: StreamNames,
    registry: Registry,
    *,
    sink: Sink | None,
    deserializer: DeserializerArgument[Any] | None,
    timestamp_assigner: Assigner | None,
    watermark_assigner: Assigner | None,
    restore: Any,
    state_store: ConditionalStore | None,
    on_alarm: AlarmListener | None,
    clock: Clock,
) -> JobParts:
    """Check the arguments, which are those of `DataFetcher`, and return the parts of the job. Nothing is opened.

    Raises: ConfigurationError if a setting is invalid; StateError if a snapshot in `restore` cannot be read.
    """
    notice_unawaited_calls()
    snapshots = checked_snapshots(restore)
    if sink is not None:
        check_sink(sink)
    check_store(state_store)
    check_function("timestamp_assigner", timestamp_assigner)
    check_function("on_alarm", on_alarm, "a function of an Alarm")
    check_function("watermark_assigner", watermark_assigner)
    publisher = source_class(registry, given)
    check_properties(registry, given)
    for told in unread_at_start(registry, given, sink):
        log.warning("%s", told)
    check_source(publisher, given, list(names.given.values()))
    values = chosen_deserializer(registry, given, deserializer)
    if isinstance(values, StreamDeserializer):
        values.check(names.given)
    if issubclass(publisher, QueueSource):
        job = build_queue_job(
            publisher,
            registry,
            given,
            names,
            sink=sink,
            values=values,
            on_alarm=on_alarm,
            clock=clock,
            restore=snapshots,
            state_store=state_store,
            timestamp_assigner=timestamp_assigner,
            watermark_assigner=watermark_assigner,
        )
        warn_of_broken_plugins(registry)
        return JobParts(job, None, tuple(names.given), "")
    assert issubclass(publisher, RecordPublisherFactory)
    settings = FetcherSettings.of(given)
    sink = checked_for_archive(given, build_sink(registry, given) if sink is None else sink)
    dead_letters = build_dead_letter_sink(registry, given)
    check_places(given, sink, dead_letters)
    store = named_store(state_store or build_store(registry, given), settings.drain_ms / 1000)
    group = None
    if given.value(JOB_WORKERS) == "GROUP":
        # Imported here because most jobs run alone and need no groups.
        from ..host.group_from_properties import group_from_properties

        group = group_from_properties(given, sink, dead_letters, store, snapshots)
    factory = build_source(registry, given, publisher)
    merge_snapshots(snapshots, factory.order_of)
    lister = ShardLister(factory, given, names.given, clock)
    streams = names.stream_list(partial(publisher.check, given), given)
    alone = _alone_worker(given, sink, store, streams, clock) if group is None else None
    dependencies = FetcherDependencies(
        factory=factory,
        discovery=ShardDiscovery(lister, streams, settings.discovery_interval_ms),
        sink=sink,
        tracker=OwnWatermark(),
        decorator_for=batch_decorator_factory(registry, given, values, timestamp_assigner, watermark_assigner),
        settings=settings,
        clock=clock,
        starts=Starts(passed_initial_position(given, clock.now_ms())),
        pin_latest=lister.server_time_ms,
        retention=_retention_check(factory, lister, clock),
        tip=lister.tip,
        retention_ms=lister.retention_ms,
        shard_exists=lister.shard_exists,
        is_endless=lister.is_endless,
        on_alarm=on_alarm,
        use_continuations=publisher.resumes_by_continuation,
        alone=alone,
        check_owner=None if alone is None else alone.check_owner,
        dead_letters=dead_letters,
        traced=traced_calls(given, clock),
        restore=snapshots,
        job_name=given.value(JOB_NAME),
        value_type=value_type_made_by(values),
        value_types=value_types_made_by(values),
    )
    fetcher = build_fetcher(dependencies, group)
    with PluginCall(factory, "prepare", is_watched=False):
        factory.prepare(list(names.given.values()))
    warn_of_broken_plugins(registry)
    place = destination_of(sink) if stores_positions(type(sink)) else "" if store is None else store.place
    return JobParts(fetcher, lister, streams, place)


class JobParts(msgspec.Struct, frozen=True):
    """The parts of a job.

    - `lister`: lists the shards of the streams; None if the job reads a queue.
    - `state_place`: the location where the job stores its positions, or "".
    """

    fetcher: ShardFetcher | QueueJob
    lister: ShardLister | None
    streams: Sequence[str]
    state_place: str


def _retention_check(factory: RecordPublisherFactory, lister: ShardLister, clock: Clock) -> RetentionCheck | None:
    if factory.finds_gaps:
        return None
    return RetentionCheck(lister.oldest_retained_ms, lister.oldest_record, factory.order_of, clock)


def _alone_worker(
    given: Properties, sink: Sink, store: ConditionalStore | None, streams: StreamList, clock: Clock
) -> AloneWorker | None:
    """Return the worker of a job that runs without a group, or None if the job has no store for positions.

    That store is `store`, or else the one of the sink. Raises: ConfigurationError if a `CommittingSink` has neither.
    """
    entries = entry_store_of(sink)
    if (place := store or entries) is None:
        if isinstance(sink, CommittingSink):
            reason = f"{type(sink).__name__} commits rows together with positions, which are stored there"
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason=reason)
        return None
    from recordpublisher.fetcher.elastic.alone_worker import AloneWorker
    from recordpublisher.fetcher.elastic.job_storage import JobStorage, group_job_of
    from recordpublisher.fetcher.leases.lease_settings import LeaseSettings

    name = given.value(JOB_NAME)
    storage = JobStorage(place, LeaseSettings(**values_of(LeaseSettings, given)), name)
    return AloneWorker(storage, group_job_of(streams, sink, name), sink, clock)


# --- the job of a queue, which has no positions ---------------------------------------------------------------------------------------

_NO_WATERMARKS = (
    "a queue keeps no order, so it has no watermarks; leave it out, and take the time from the record's value"
)
_NO_ARCHIVE = "a queue keeps no order, so no file can say which records of a shard it has; leave it out"
_OF_WATERMARKS = ("flink.watermark.", IDLE_INTERVAL.key)
"""Beginnings of the keys that a job without watermarks refuses, even if they have their default."""
_REFUSED_ARGUMENTS = {
    "restore": "a queue has no positions to restore; leave it out",
    "state_store": "nothing is stored: the queue keeps what is not acknowledged; leave it out",
    "timestamp_assigner": _NO_WATERMARKS,
    "watermark_assigner": _NO_WATERMARKS,
    "streams": "a function of streams is for sources with positions; give their names",
}


def build_queue_job(
    source: type[QueueSource],
    registry: Registry,
    given: Properties,
    names: StreamNames,
    *,
    sink: Sink | None,
    values: Deserializer[Any],
    on_alarm: AlarmListener | None,
    clock: Clock,
    **refused: object,
) -> QueueJob:
    """Build the parts of a job that reads a queue. Nothing is opened.

    - `refused`: arguments of a job with positions. They must be None or empty here.

    Raises: ConfigurationError if a setting is invalid, or needs positions.
    """
    _check_without_positions(given, streams=names.function, **refused)
    (stream,) = names.given or ("",)
    made = build_source(registry, given, source)
    with PluginCall(made, "prepare", is_watched=False):
        made.prepare(list(names.given.values()))
    sink = checked_for_no_archive(given, build_sink(registry, given) if sink is None else sink, _NO_ARCHIVE)
    dead_letters = build_dead_letter_sink(registry, given)
    check_places(given, sink, dead_letters)
    return QueueJob(
        QueueJobParts(
            source=made,
            stream=stream,
            sink=sink,
            decorator_for=batch_decorator_factory(registry, given, values),
            settings=QueueSettings.of(given),
            clock=clock,
            dead_letters=dead_letters,
            on_alarm=on_alarm,
            traced=traced_calls(given, clock),
            value_type=value_type_made_by(values),
        )
    )


def _check_without_positions(properties: Properties, **arguments: object) -> None:
    """Check that a job that reads a queue has no setting that needs positions. Raises: ConfigurationError if it has one."""
    if (uri := properties.value(STATE_URI)) is not None:
        reason = "nothing is stored: the queue keeps what is not acknowledged; leave it out"
        raise ConfigurationError(STATE_URI.key, uri, reason=reason)
    for key in properties:
        if key.lower().startswith(_OF_WATERMARKS):
            raise ConfigurationError(key, properties[key], reason=_NO_WATERMARKS)
    if properties.value(JOB_WORKERS) == "GROUP":
        reason = "processes share a queue without a group; start as many as are needed"
        queue = f"{RECORD_PUBLISHER.key}={properties.as_given(RECORD_PUBLISHER)}"
        raise ConfigurationError.conflict(JOB_WORKERS.key, queue, value="GROUP", reason=reason)
    for name, value in arguments.items():
        if value is not None and value != ():
            shown = value if isinstance(value, str) else repr(value)[:200]
            raise ConfigurationError(name, shown, reason=_REFUSED_ARGUMENTS[name])
