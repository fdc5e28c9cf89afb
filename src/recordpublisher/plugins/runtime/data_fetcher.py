"""`rp.DataFetcher`: checks its arguments and builds the parts of a job from properties.

It is the only place that wires the layers together. The reading itself is done by `recordpublisher.fetcher.subtask_fetcher.SubtaskFetcher`.
"""

from __future__ import annotations  # the reference and help() show types by their names

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, Unpack

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.fetcher.alarms import AlarmListener
from recordpublisher.fetcher.assembly import build_fetcher
from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore, SubtaskCheckpoints
from recordpublisher.fetcher.checkpoints.starts import Starts
from recordpublisher.fetcher.checkpoints.subtask_commits import SubtaskCommits
from recordpublisher.fetcher.committing_sink import CommittingSink, entries_of, stores_positions
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.dependencies import FetcherDependencies
from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.sink import Sink, State, Unfinished
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.generated.settings import JobSettings
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT, STATE_URI
from recordpublisher.publishers.properties.groups.job import JOB_NAME
from recordpublisher.publishers.properties.groups.publisher import RECORD_PUBLISHER
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import V

from ..host.build_from_properties import (
    build_dead_letter_sink,
    build_shard_assigner,
    build_sink,
    build_store,
    build_tracker,
)
from ..host.manager import load_registry
from ..host.registry import Registry
from ..tracing.provider import traced_calls
from .arguments import (
    check_function,
    check_sink,
    check_store,
    check_subtask,
    checked_properties,
    checked_snapshots,
    described_job,
)
from .batch_decoration import Assigner, batch_decorator_factory, chosen_deserializer, made_type
from .short_errors import SHORT_ERRORS
from .sources_without_positions import check_without_positions
from .stop_signals import STOP_SIGNALS
from .stream_lister import StreamLister
from .stream_names import StreamNames, StreamsArgument

log = logging.getLogger("recordpublisher.fetcher")
OF_COMMAND: ContextVar[Callable[[Properties], Properties]] = ContextVar(
    "recordpublisher_of_command", default=lambda given: given
)
"""Changes the properties of a fetcher that a program makes for `recordpublisher run`: by the options of the command."""


class DataFetcher(Generic[V]):
    """Reads streams into a sink: checked at construction, opened by `async with`, driven by `run` or `run_bounded`.

    `streams` are names, ARNs or NAME=ARN (a name of its own), one or several; or a function, plain or async, that returns them, called in a
    thread each `flink.streams.interval` (S10). Properties are given as a mapping, as keyword arguments (`region="eu-west-1"`, see
    `Settings`), or both. Three arguments override properties. `deserializer` makes the value of a record (default: bytes): a type that JSON
    is decoded into and checked (`Order`, `list[Order]`), `rp.Json`, `rp.Avro` or `rp.Protobuf`, or a function of a record. Functions of a
    record are `timestamp_assigner`, its event time in epoch ms (default: arrival), and `watermark_assigner`, the watermark that it carries
    in epoch ms (default: `flink.watermark.strategy`). `sink` and `state_store` default to the properties `flink.sink` and
    `flink.state.uri`; a text as `sink` or `deserializer` is the name of a registered one. `restore` takes one snapshot or a list of them.
    `subtask` of `parallelism` reads its part of the shards. `on_alarm` is called with each `Alarm` in the loop's thread and must return
    soon (A2). `handle_signals` stops the run at the first SIGTERM or Ctrl-C while the fetcher is open, with a last checkpoint; a second
    signal acts as without it. Only in the main thread.

    Raises: ConfigurationError for every setting that is invalid, StateError for a snapshot that cannot be read.
    """

    @SHORT_ERRORS
    def __init__(
        self,
        streams: StreamsArgument,
        properties: Mapping[str, object] | None = None,
        *,
        sink: Sink[V] | str | None = None,
        deserializer: DeserializerArgument[V] | None = None,
        timestamp_assigner: Assigner | None = None,
        watermark_assigner: Assigner | None = None,
        restore: State | Sequence[State] | None = None,
        state_store: ConditionalStore | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        on_alarm: AlarmListener | None = None,
        handle_signals: bool = False,
        clock: Clock | None = None,
        registry: Registry | None = None,
        **settings: Unpack[JobSettings],
    ) -> None:
        given = OF_COMMAND.get()(checked_properties(properties, settings, sink=sink, deserializer=deserializer))
        self.properties = given
        self._given_sink, self._given_store = None if isinstance(sink, str) else sink, state_store
        names = StreamNames(streams)
        snapshots = checked_snapshots(restore)
        check_subtask(subtask, parallelism)
        sink = None if isinstance(sink, str) else sink
        if sink is not None:
            check_sink(sink)
        check_store(state_store)
        check_function("timestamp_assigner", timestamp_assigner)
        check_function("on_alarm", on_alarm, "a function of an Alarm")
        check_function("watermark_assigner", watermark_assigner)
        registry = registry or load_registry()
        publisher = registry.publishers.get(given.value(RECORD_PUBLISHER) or "", RECORD_PUBLISHER.key)
        registry.import_chosen(given)  # plugins declare properties of their own
        given.check()
        publisher.check(given, list(names.given.values()))
        self._has_positions = publisher.visibility_seconds is None
        if not self._has_positions:
            check_without_positions(
                given,
                restore=snapshots,
                state_store=state_store,
                timestamp_assigner=timestamp_assigner,
                watermark_assigner=watermark_assigner,
                streams=streams if callable(streams) else None,
            )
        of_fetcher = FetcherSettings.of(given)
        sink = build_sink(registry, given) if sink is None else sink
        dead_letters = build_dead_letter_sink(registry, given)
        store = state_store or build_store(registry, given)
        group = None
        if given.value(SHARD_ASSIGNMENT) == "ELASTIC":
            from ..host.elastic_group import elastic_group_of  # most jobs are STATIC, and import nothing of groups

            group = elastic_group_of(given, sink, dead_letters, store, snapshots, parallelism)
        values = chosen_deserializer(registry, given, deserializer)
        factory = publisher(given)  # type: ignore[call-arg]
        merge_snapshots(snapshots, factory.order_of)
        clock = clock or SystemClock()
        lister = StreamLister(factory, given, names.given, clock)
        self._lister = lister
        self._given_streams = names.given
        self._state_place = sink.destination() if stores_positions(type(sink)) else "" if store is None else store.place
        self.subtask = subtask
        self._streams = names.stream_list(partial(publisher.check, given), given)
        dependencies = FetcherDependencies(
            factory=factory,
            discovery=ShardDiscovery(lister, self._streams, of_fetcher.discovery_interval_ms),
            sink=sink,
            tracker=build_tracker(registry, given, names.identity, parallelism, clock),
            decorator_for=batch_decorator_factory(
                registry,
                given,
                values,
                timestamp_assigner,
                watermark_assigner,
            ),
            settings=of_fetcher,
            clock=clock,
            assigner=build_shard_assigner(registry, given),
            starts=Starts(initial_position(given, clock.now_ms())),
            pin_latest=lister.server_time_ms,
            retention=RetentionCheck(lister.oldest_retained_ms, lister.oldest_record, factory.order_of, clock),
            tip=lister.tip,
            retention_ms=lister.retention_ms,
            shard_exists=lister.shard_exists,
            is_endless=lister.is_endless,
            on_alarm=on_alarm,
            use_continuations=publisher.resumes_by_continuation,
            checkpoints=None
            if store is None or group is not None or (isinstance(sink, CommittingSink) and entries_of(sink) is None)
            else SubtaskCheckpoints(SnapshotStore(store), subtask, parallelism),
            commits=self._commits(sink, store, subtask, parallelism, clock)
            if group is None and self._has_positions
            else None,
            dead_letters=dead_letters,
            traced=traced_calls(given, clock),
            restore=snapshots,
            subtask=subtask,
            parallelism=parallelism,
            value_type=made_type(values),
        )
        self._fetcher = build_fetcher(dependencies, group)
        self._handles_signals = handle_signals
        factory.prepare(list(names.given.values()))

    def _commits(
        self, sink: Sink, store: ConditionalStore | None, subtask: int, parallelism: int, clock: Clock
    ) -> SubtaskCommits | None:
        if not isinstance(sink, CommittingSink):
            return None
        entries = sink.entries()
        if entries is not None and store is not None:
            log.warning("positions are in %s, with the rows; those in %s are a copy", entries.place, store.place)
        if (place := entries or store) is None:
            reason = f"{type(sink).__name__} commits rows by the positions there"
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason=reason)
        return SubtaskCommits(sink, place, self.properties.value(JOB_NAME), subtask, parallelism, clock)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams that are read now."""
        return tuple(self._streams)

    def described(self) -> Properties:
        """The properties that describe this job to a command beside it: its streams, and where it stores its positions.

        Raises: ConfigurationError when only the program's own objects know that.
        """
        return described_job(self.properties, self._given_streams.values(), self._given_sink, self._given_store)

    async def __aenter__(self) -> Self:
        with SHORT_ERRORS:
            try:
                if self._handles_signals:
                    STOP_SIGNALS.add(self.stop)
                await self._fetcher.open()
            except BaseException as error:
                await self._close(error)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(error)

    async def run(self) -> BoundedResult:
        """Run until `stop()`, an error, or the end of every stream (S8).

        The run ends with a checkpoint, except after an error or a cancellation. Raises: RecordPublisherError, and errors of the sink.
        """
        return await self.run_bounded()

    async def run_bounded(
        self,
        max_time: float | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        until_event_time: int | None = None,
        stop_at_tip: bool = False,
    ) -> BoundedResult:
        """Run until the first bound (see `Bounds`) is met; returns why and where it ended.

        A further call continues where the last run ended. Raises: as `run`.
        """
        with SHORT_ERRORS:
            if not self._has_positions:
                check_without_positions(self.properties, until_event_time=until_event_time)
            bounds = Bounds(max_time, max_records, max_bytes, until_event_time, stop_at_tip)
            try:
                return await self._fetcher.run_bounded(bounds)
            except FatalKinesisError as error:
                if error.code in ("InvalidArgumentException", "ValidationException") and self._state_place:
                    error.add_note(f"the state is in {self._state_place}")
                raise

    def stop(self) -> None:
        """End the run after the current write; call it in the loop's thread. A later run ends at once.

        With ELASTIC assignment it reads on for 5 s at most, if there are other processes, until they know that they get its shards.
        """
        self._fetcher.stop()

    def snapshot(self) -> dict[str, Any]:
        """The state after exactly the batches whose `write` has returned, as a JSON-serialisable dict (S1)."""
        return self._fetcher.snapshot()

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, store the snapshot and return it (S6).

        Raises: FencedError when a newer start owns the state, StateError, and errors of the sink's `flush`.
        """
        return await self._fetcher.checkpoint()

    def metrics(self) -> dict[str, Any]:
        """`{"subtask": {...}, "shards": {"orders/shardId-...": {...}}}` with plain values; see docs/reference/metrics.md (A1)."""
        return self._fetcher.metrics()

    def retention_ms(self, stream: str) -> int | None:
        """How long a stream keeps its records, ms, as last requested (every five minutes); None while that is not known."""
        return self._fetcher.retention_ms(stream)

    def progress(self) -> SubtaskProgress:
        """The figures of a progress line: `records` read, `open_shards`, `idle_shards`, `held_shards`, `skipped`, `dead_letters`,
        `behind_ms` of the shard furthest behind its tip, and `unfinished` records of the sink (None: not known). A twentieth of the cost of
        `metrics()`.
        """
        return self._fetcher.progress()

    def sink_metrics(self) -> list[SinkMetric]:
        """The metrics that the sink has of its own; empty for most."""
        return self._fetcher.sink_metrics()

    def sink_unfinished(self) -> Unfinished | None:
        """What the sink is not done with; None for most."""
        return self._fetcher.sink_unfinished()

    async def wait_ready(self) -> None:
        """Wait until the run has read each open shard of this subtask once, for tests.

        Returns when the run ends, too. Raises: the error that ended it.
        """
        await self._fetcher.wait_ready()

    def reasons_not_ready(self) -> list[str]:
        """Why this subtask is not ready, in plain words. Empty: it reads, its checkpoints are stored, it is not fenced."""
        return self._fetcher.reasons_not_ready()

    async def _close(self, ended_by: BaseException | None) -> None:
        """Close everything; an error while closing does not hide the error that ended the job."""
        try:
            try:
                await self._fetcher.close()
            finally:
                STOP_SIGNALS.remove(self.stop)
                await self._lister.close()
            self._tell_what_was_left_out()
        except Exception as error:
            if ended_by is None:
                raise
            log.warning("closing the fetcher failed too: %s", error, exc_info=error)

    def _tell_what_was_left_out(self) -> None:
        """The lines about bad records name some of them; a script has no metrics that would count them."""
        done = self._fetcher.progress()
        skipped = done.skipped + sum(int(each.value or 0) for each in self.sink_metrics() if each.name == "skipped")
        if skipped or done.dead_letters:
            log.warning(
                "left out in all: %s, %s", counted(skipped, "skipped record"), counted(done.dead_letters, "dead letter")
            )
