"""Checks what a job needs in addition to its streams.

It checks the state store and the sinks, whether another process runs the job, and whether unread records are about to be lost. A source
that does not read shards of Kinesis, such as QUEUE or DYNAMODB_STREAMS, is checked with its own listing.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.consumer.typed_values import fields_of, type_info, type_name
from recordpublisher.fetcher.checkpoints.snapshot_format import ANOTHER_PLACE, COPY_POSITIONS, refuse_other_job
from recordpublisher.fetcher.elastic.alone_worker import is_process
from recordpublisher.fetcher.elastic.job_storage import JobStorage, group_job_of
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.lease_table import GroupJob
from recordpublisher.fetcher.leases.worker_record import HOST, WorkerRecord
from recordpublisher.fetcher.pipeline.checked_sink_calls import destination_of
from recordpublisher.fetcher.settings import checkpoint_interval_ms
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.fetcher.sink import Sink, SinkContext, entry_store_of, stores_positions
from recordpublisher.plugins.host.build_from_properties import (
    build_dead_letter_sink,
    build_sink,
    build_source,
    build_store,
    check_places,
    source_class,
)
from recordpublisher.plugins.host.group_from_properties import group_from_properties
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.plugins.lag.job_state import JobStateReader, effect_of_no_positions
from recordpublisher.plugins.lag.probe import LagProbe
from recordpublisher.plugins.runtime.argument_checks import chosen_deserializer, value_type_made_by, value_types_made_by
from recordpublisher.plugins.runtime.stream_names import StreamNames, streams_argument
from recordpublisher.plugins.stores.back_ends import back_end_of
from recordpublisher.plugins.stores.by_location import missing_folder
from recordpublisher.publishers.base import Checks, RecordPublisherFactory, RecordSource, shards_listed_by
from recordpublisher.publishers.errors import RecordPublisherError, StateError, StoreUnavailableError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.job_properties import (
    CHECKPOINT_INTERVAL,
    DEAD_LETTER_SINK,
    JOB_NAME,
    JOB_WORKERS,
    SINK,
    STATE_URI,
    STREAMS,
    STREAMS_FILE,
    STREAMS_FUNCTION,
    TIMESTAMP_FIELD,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import LIST_SHARDS_RETRIES, RECORD_PUBLISHER
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.safe_text import counted, few_of
from recordpublisher.publishers.shards import stream_name

from .findings import CHECK_WOULD_CHANGE_SOMETHING, Finding, NotCheckedError, Verdict, examine, examine_all

MIN_LOSS_MS = 4 * 3_600_000
"""If unread records will be lost in less than this time (ms), doctor reports a problem, because a person needs time to act."""


class JobChecks:
    """The checks of one job. They open no sink, store nothing and retry nothing.

    - `made`: the exit stack that closes the stores and sinks that the checks make.
    - `deserializer`, `sink`: the objects that the job's program gave, each of them None if the properties name it.
    """

    def __init__(
        self,
        registry: Registry,
        properties: Properties,
        made: AsyncExitStack,
        deserializer: DeserializerArgument[Any] | None = None,
        sink: Sink | None = None,
    ) -> None:
        self._deserializer = deserializer
        self._sink = sink
        self._registry = registry
        self._properties = properties.merged({MAX_OUTAGE.key: 0})
        self._is_group = properties.value(JOB_WORKERS) == "GROUP"
        self._made = made
        self._has_store = False

    async def store_findings(self) -> list[Finding]:
        """Check whether the state store can be read, and list its write actions, which cannot be checked."""
        found = await examine("store", self._group_store if self._is_group else self._store)
        self._has_store = found.verdict is Verdict.OK
        words = f"{CHECK_WOULD_CHANGE_SOMETHING}: look at the IAM policy"
        return [found, *(Finding(f"store: {each}", Verdict.NOT_CHECKED, words) for each in self._store_changes())]

    def _store_changes(self) -> list[str]:
        """Return the IAM actions by which the store writes. They are not checked, because the APIs of stores have no DryRun."""
        changes = ("writes", "deletes") if self._is_group else ("writes",)
        with suppress(RecordPublisherError):  # Another finding reports a store that cannot be made.
            store = self._registry.stores.get(back_end_of(self._properties.value(STATE_URI) or "").name, STATE_URI.key)
            return [action for action, does in store.actions.items() if does in changes]
        return []

    async def sink_findings(self) -> list[Finding]:
        """Check whether the sink and the dead-letter sink can be made, and run their own checks."""
        findings = []
        for name, make in {"sink": self._make_sink, "dead-letter sink": self._make_dead_letter_sink}.items():
            sinks: list[Sink] = []
            found = await examine(name, partial(make, sinks))
            findings += [found] if sinks or found.verdict is Verdict.PROBLEM else []
            for sink in sinks:
                findings += await examine_all(name, sink.checks)
                findings += await self._value_findings(sink, name)
        return findings

    async def _value_findings(self, sink: Sink, name: str) -> list[Finding]:
        """Check whether `sink` accepts the job's values, and whether the values have the field with the event time.

        Values for the dead-letter sink have no type, so their fields are not checked.
        """
        try:
            of, by_stream = None, {}
            if name == "sink":
                values = chosen_deserializer(self._registry, self._properties, self._deserializer)
                of, by_stream = value_type_made_by(values), value_types_made_by(values)
        except Exception:  # Another finding reports which plugin has failed.
            return []
        takes_all = type(sink).check_values is Sink.check_values
        context = SinkContext(value_type=of, value_types=by_stream)
        findings = [] if takes_all else [await examine(f"{name}: values", lambda: sink.check_values(context))]
        field, fields = self._properties.value(TIMESTAMP_FIELD), None
        with suppress(TypeError):  # The fields of some types, such as a union of dataclasses, cannot be told.
            fields = fields_of(type_info(of)) if of else None
        if fields and field is not None and field not in {each.name for each in fields}:
            words = f"{type_name(of)} has no field {field!r}: a record that is not JSON with that field is a bad record"
            findings.append(Finding(TIMESTAMP_FIELD.key, Verdict.NOT_CHECKED, words))
        return findings

    async def running_finding(self) -> Finding:
        """Check whether another process runs the job. The check does not disturb that process."""
        return await examine("runs elsewhere", self._running)

    async def lag_finding(self, stream: str, client: KinesisClient) -> Finding:
        """Check whether unread records of a Kinesis stream are about to be lost."""
        return await examine(f"{stream}: lag", lambda: self._lag(stream, client))

    async def _store(self) -> str:
        store = build_store(self._registry, self._properties)
        if store is None:
            return await self._store_in_sink()
        self._made.push_async_callback(store.close)
        sink = None
        with suppress(Exception):  # Another finding reports a sink that cannot be made or read.
            sink = self._keeping_sink()
        reader = JobStateReader(store, sink)
        if place := missing_folder(self._properties.value(STATE_URI) or ""):
            await check_rows(reader)
            return f"{place} will be created"
        return f"reachable, {await self._stored(reader)}"

    async def _store_in_sink(self) -> str:
        """Return how many positions the sink stores with its rows. Raises: NotCheckedError if it stores none, or cannot be read."""
        try:
            sink = self._keeping_sink()
            stored = None if sink is None else await self._stored(JobStateReader(None, sink))
        except Exception as error:  # A plugin may raise any error.
            if isinstance(error, StateError) and not isinstance(error, StoreUnavailableError):
                raise
            raise NotCheckedError(f"{STATE_URI.key} is not set, and the sink cannot be read") from error
        if stored is None:
            raise NotCheckedError(f"{STATE_URI.key} is not set")
        return f"not needed: {self._properties.value(SINK)} keeps the positions with its rows, {stored}"

    async def _stored(self, reader: JobStateReader) -> str:
        """Return the number of shards with stored positions, as text.

        Raises: StateError if the positions belong to another job, or cannot be read.
        """
        table = None if reader.documents is None else await reader.documents.read_table()
        if table is not None and table.document.job is not None:
            refuse_other_job(reader.place, table.document.job.name, self._properties.value(JOB_NAME))
        count = sum(len(each["shards"]) for each in await reader.load())
        if not count:
            await check_rows(reader)
        return f"positions of {counted(count, 'shard')}"

    def _keeping_sink(self) -> Sink | None:
        """Make and return the sink if it stores the positions with its rows; else return None."""
        name = self._properties.value(SINK)
        keeps = name is not None and stores_positions(self._registry.sinks.get(name, SINK.key))
        return self._made_sink() if keeps else None

    async def _group_store(self) -> str:
        group, sink = self._group(), None
        found = await check_members(group)
        with suppress(Exception):  # Another finding reports a sink that cannot be made.
            sink = self._keeping_sink()
        if sink is not None and await GroupStore(group.store).read_table() is None:
            await check_rows(JobStateReader(group.store, sink))
        return found

    def _group(self) -> JobStorage:
        """Return the group that the job would join.

        Raises: ConfigurationError if a property cannot be combined with a group; NotCheckedError if the job runs alone.
        """
        sink = dead_letters = None
        with suppress(Exception):  # Another finding reports a sink that cannot be made.
            sink = self._made_sink()
        with suppress(Exception):
            dead_letters = build_dead_letter_sink(self._registry, self._properties)
        if dead_letters is not None:
            self._close_later(dead_letters)
        store = build_store(self._registry, self._properties)
        if store is not None:
            self._made.push_async_callback(store.close)
        group = group_from_properties(self._properties, sink, dead_letters, store, ())
        if group is None:
            raise NotCheckedError(f"{JOB_WORKERS.key} is not GROUP")
        return group

    def _make_sink(self, made: list[Sink]) -> str:
        sink = build_sink(self._registry, self._properties)
        found = self._keep(sink, made, self._properties.value(SINK))
        words = effect_of_no_positions(type(sink), self._properties)
        return f"{found}; {words}" if words else found

    def _make_dead_letter_sink(self, made: list[Sink]) -> str:
        sink = build_dead_letter_sink(self._registry, self._properties)
        if sink is None:
            return "none"
        told, of_job = self._keep(sink, made, self._properties.value(DEAD_LETTER_SINK)), None
        with suppress(Exception):  # Another finding reports a sink that cannot be made.
            of_job = self._made_sink()
        if of_job is not None:
            check_places(self._properties, of_job, sink)
        return told

    def _keep(self, sink: Sink, made: list[Sink], name: str | None) -> str:
        self._close_later(sink)
        destination_of(sink)  # A job calls it at its start, and ends there if it fails.
        made.append(sink)
        return f"{name}, configured"

    def _close_later(self, sink: Sink) -> None:
        self._made.push_async_callback(sink.close)
        if (entries := entry_store_of(sink)) is not None:
            self._made.push_async_callback(entries.close)

    async def _running(self) -> str:
        if self._is_group:
            if not self._has_store:
                raise NotCheckedError("the group cannot be read")
            sink = None
            with suppress(Exception):  # Another finding reports a sink that cannot be made.
                sink = self._made_sink() if self._sink is None else self._sink
            return await check_group(self._group(), None if sink is None else partial(self._group_job, sink))
        return await check_alone(self._positions(), self._properties)

    def _group_job(self, sink: Sink, of_group: GroupJob) -> GroupJob:
        """Return the job of a process that starts here.

        If the properties do not name the streams, or the group's list may change, the streams count as those of the group: for a program
        whose function lists the streams, the properties have only its present list.
        """
        streams = of_group.streams
        if streams is not None and any(map(self._properties.is_set, (STREAMS, STREAMS_FILE, STREAMS_FUNCTION))):
            names = StreamNames(streams_argument(self._properties)).stream_list(lambda streams: None, self._properties)
            return group_job_of(names, sink, self._properties.value(JOB_NAME))
        return replace(group_job_of(StreamList(()), sink, self._properties.value(JOB_NAME)), streams=streams)

    async def _lag(self, stream: str, client: KinesisClient) -> str:
        positions = self._positions()
        if not await positions.load():
            raise NotCheckedError("the job has not stored any positions yet")
        probe = LagProbe.of(self._properties, client, client, stream, positions)
        losses = {shard.shard: shard.loss_ms for shard in await probe.read() if shard.loss_ms is not None}
        shard = min(losses, key=losses.__getitem__, default=None)
        if shard is not None and losses[shard] < MIN_LOSS_MS:
            raise RecordPublisherError(
                f"unread records of {shard} will be lost in {losses[shard] / 3_600_000:.1f} h: start the job now, or increase the retention"
            )
        return "no unread records are about to be lost"

    def _positions(self) -> JobStateReader:
        """Return the reader of the job's positions. Raises: NotCheckedError if the job stores none, or they cannot be read."""
        sink = self._keeping_sink()
        store = build_store(self._registry, self._properties) if self._has_store else None
        if store is not None:
            self._made.push_async_callback(store.close)
        if store is None and sink is None:
            raise NotCheckedError("the job stores no positions, or they cannot be read")
        return JobStateReader(store, sink)

    def _made_sink(self) -> Sink:
        sink = build_sink(self._registry, self._properties)
        self._close_later(sink)
        return sink


MAX_SECONDS = 30.0
"""The longest time for which doctor watches positions (seconds)."""
SPARE_SECONDS = 1.0
"""The time that doctor watches in addition to one checkpoint interval, because storing a checkpoint takes time (seconds)."""


async def check_rows(positions: JobStateReader) -> None:
    """Check that the sink of a job without a lease table stores no positions with its rows.

    Raises: StateError if it does. The lease table of these positions is elsewhere, and a start without that table is refused.
    """
    if await positions.load_beside_rows():
        raise StateError(
            f"the sink has positions with its rows in {positions.place}, and their lease table is elsewhere, so a start is refused: use "
            f"the {STATE_URI.key} of their job (none, if it had none) or, if that store is lost, run {COPY_POSITIONS.format(source='')}"
        )


async def check_alone(positions: JobStateReader, properties: Properties) -> str:
    """Check that no other process runs this job, which must run alone. Return in words why none seems to run.

    The check watches for one checkpoint interval, up to `MAX_SECONDS`, whether a checkpoint is stored.

    Raises: RecordPublisherError if a worker runs the job: a start here would replace that worker. NotCheckedError if only the sink has
    positions, or if a checkpoint may take longer than the check.
    """
    if positions.documents is None:
        sink = properties.value(SINK)
        raise NotCheckedError(f"{sink} keeps the positions with its rows, which do not tell whether a job runs")
    # The snapshots of the state store name their workers. Those that a sink of another package stores do not.
    before = await positions.load_in_store()
    if not before:
        return "no: no positions are stored"
    interval_ms = checkpoint_interval_ms(properties)
    seconds = min(MAX_SECONDS, interval_ms / 1000 + SPARE_SECONDS) if interval_ms > 0 else 0.0
    first = await _unsealed_records(positions.documents)
    await asyncio.sleep(seconds)
    last, after = await _unsealed_records(positions.documents), await positions.load_in_store()
    if not last:
        return "no: the worker that ran it was stopped"
    live = [each["worker"] for each in after if each not in before and each["worker"] in last]
    live += [worker for worker, record in last.items() if worker in first and first[worker].beat != record.beat]
    if live:
        record = last[live[0]]
        raise RecordPublisherError(
            f"worker {live[0]} (process {record.pid} on {record.host}) stores checkpoints: a start here would "
            "replace that worker, which would "
            f"fail. Stop it first, or give this job {ANOTHER_PLACE}"
        )
    worker, record = next(iter(last.items()))
    if interval_ms < 0 or interval_ms / 1000 > MAX_SECONDS:
        raise NotCheckedError(
            f"worker {worker} may be running: it stored nothing for {seconds:g} s, but it stores its positions only "
            f"{'when it stops' if interval_ms < 0 else f'every {interval_ms / 1000:g} s'} ({CHECKPOINT_INTERVAL.key})"
        )
    if record.host == HOST and is_process(record.pid):
        raise RecordPublisherError(
            f"worker {worker} (process {record.pid} on this machine) runs this job: a start here would replace "
            "that worker, which would fail. "
            f"Stop it first, or give this job {ANOTHER_PLACE}"
        )
    return (
        f"probably not: worker {worker} (process {record.pid} on {record.host}) was not stopped, but has stored nothing for {seconds:g} s: "
        "it was killed, or it has nothing to read. A start here replaces it"
    )


async def _unsealed_records(documents: GroupStore) -> dict[str, WorkerRecord]:
    """Return the records of the workers that were not declared dead (sealed)."""
    records = await documents.read_records()
    return {worker: each.document for worker, each in records.items() if not each.document.is_sealed}


async def check_group(group: JobStorage, own_job: Callable[[GroupJob], GroupJob] | None = None) -> str:
    """Return which workers of a group send heartbeats. A process that starts here joins them.

    `own_job`: returns the job of a process that starts here, given the job of the group. None if it is not known.

    Raises: RecordPublisherError if such a process would be refused, because the workers have another sink, or other streams.
    """
    before = await group.documents.read_records()
    if not before:
        return "no: the group has no workers"
    await asyncio.sleep(group.settings.interval + SPARE_SECONDS)
    after, table = await group.documents.read_records(), await group.documents.read_table()
    live = [
        name
        for name, each in after.items()
        if not each.document.is_sealed and (name not in before or before[name].document.beat != each.document.beat)
    ]
    if not live:
        return "no: no worker of the group sends heartbeats"
    of_group = None if table is None else table.document.job
    if of_group is not None and own_job is not None and (difference := own_job(of_group).contradiction(of_group)):
        raise RecordPublisherError(
            f"worker {few_of(sorted(live))} runs this group, and a start here is refused, because it differs: {difference}. To change "
            f"settings, first stop all processes of the group. If this is a different job, give it {ANOTHER_PLACE}"
        )
    leases = [] if table is None else table.document.leases.values()
    shards = {name: sum(lease.owner == name for lease in leases) for name in sorted(live)}
    named = few_of([f"{name} ({counted(count, 'shard')})" for name, count in shards.items()])
    return f"yes: worker {named}; a process that starts here joins them, and takes its share of the shards"


async def check_members(group: JobStorage) -> str:
    """Return the size of the group that a process would join. Raises: StateError if the group belongs to another job."""
    table = await group.documents.read_table()
    if table is None:
        return "reachable, no group yet"
    stored = table.document.job
    refuse_other_job(group.store.place, None if stored is None else stored.name, group.job_name)
    if table.document.alone is not None:
        return "a job that ran alone; a process that starts here continues at its positions"
    return f"a group with {counted(len(table.document.leases), 'shard')} and {counted(len(table.document.owners), 'worker')}"


class SourceWithChecks:
    """Checks a source with the source's own checks, and owns the source.

    The source is a queue, or the factory of a publisher that lists its streams itself (`discover`) or wraps another one (`is_wrapper`).
    """

    def __init__(self, name: str, source: RecordSource, *, is_wrapper: bool = False) -> None:
        self.name = name
        self._source, self._is_wrapper = source, is_wrapper

    async def endpoint_url(self) -> str:
        """Return the endpoint that the source calls. Raises: NotCheckedError if the source does not report it."""
        url = await self._source.endpoint_url()
        if url is None:
            raise NotCheckedError(f"{self.name} does not say which endpoint it calls")
        return url

    async def findings(self, stream: str) -> list[Finding]:
        """Run the source's own checks, and return their findings. If the source is not a wrapper, also check whether it lists shards."""
        table, factory = stream_name(stream), self._source
        checks: Checks | None = None

        def checks_of() -> Checks:
            nonlocal checks
            checks = factory.checks(stream if self._is_wrapper else table)
            return checks

        found = await examine_all(stream, checks_of)
        if isinstance(factory, RecordPublisherFactory) and not self._is_wrapper:

            async def shards() -> str:
                return f"{self.name} lists {counted(len(await shards_listed_by(factory, table) or ()), 'shard')}"

            found.append(await examine(f"{stream}: shards", shards))
        if checks is not None and not checks:
            reading = f"{self.name} has no checks, and reads records only when the job runs"
            found.append(Finding(f"{stream}: records", Verdict.NOT_CHECKED, reading))
        return found

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()


def has_source_with_checks(registry: Registry, properties: Properties) -> bool:
    """Return whether the job reads a queue, or its publisher lists its streams itself.

    The result is False if the publisher is not installed. Another finding reports that.
    """
    try:
        made = source_class(registry, properties).wrapped(properties)
    except RecordPublisherError:
        return False
    return not issubclass(made, RecordPublisherFactory) or made.discover is not RecordPublisherFactory.discover


def wrapper_of(registry: Registry, properties: Properties) -> SourceWithChecks | None:
    """Return the job's publisher if it wraps the one that reads the streams, as ARCHIVE does, else None.

    Raises: any error of the plugin's factory.
    """
    try:
        made = source_class(registry, properties)
        if made.wrapped(properties) is made:
            return None
    except RecordPublisherError:
        return None
    own = properties.merged({LIST_SHARDS_RETRIES.max_retries.key: 0})
    return SourceWithChecks(own.as_given(RECORD_PUBLISHER), build_source(registry, own, made), is_wrapper=True)


def source_with_checks_of(registry: Registry, properties: Properties) -> SourceWithChecks | None:
    """Return the job's source, or None if the job reads shards of Kinesis. Raises: any error of the plugin's factory."""
    if not has_source_with_checks(registry, properties):
        return None
    own = properties.merged({LIST_SHARDS_RETRIES.max_retries.key: 0})
    return SourceWithChecks(own.as_given(RECORD_PUBLISHER), build_source(registry, own, source_class(registry, own)))
