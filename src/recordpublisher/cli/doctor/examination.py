"""Decides which checks doctor makes of a job or of streams, and in which order."""

import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from recordpublisher.consumer.deserialization import DeserializerArgument, deserializer_of
from recordpublisher.consumer.typed_values import type_name
from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.host.build_from_properties import check_properties, source_class
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import NameTable, Registry
from recordpublisher.plugins.host.unread_settings import unread_settings
from recordpublisher.plugins.runtime.argument_checks import check_reading, value_type_made_by
from recordpublisher.plugins.stores.back_ends import BACK_ENDS, back_end_of
from recordpublisher.publishers.base import RecordSource, check_source
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import (
    DEAD_LETTER,
    DEAD_LETTER_SINK,
    DESERIALIZER,
    GLUE_ENDPOINT,
    ON_BAD_RECORD,
    SINK,
    STATE_ENDPOINT,
    WATERMARK_STRATEGY,
)
from recordpublisher.publishers.properties.properties import Properties, why_without_effect
from recordpublisher.publishers.properties.reading_properties import ENDPOINT, RECORD_PUBLISHER
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.properties.sink_properties import SINK_STREAM

from ..execution import print_note
from .connection import (
    CONNECTION_PREFIX,
    CREDENTIALS,
    REGION_CHECK,
    FindEndpoint,
    aws_findings,
    kinesis_endpoints,
    network_findings,
    service_and_region,
    service_findings,
)
from .findings import Finding, Verdict, examine, failed_finding, without_repeated_problems
from .job import JobChecks, SourceWithChecks, has_source_with_checks, source_with_checks_of, wrapper_of
from .python_and_spark import version_findings
from .streams import StreamChecks, StreamUse

AWS_ENDPOINT_ENDINGS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
"""Endings of the names of endpoints that are known to support DryRun."""


class Examination:
    """Makes the checks of one job, or of streams.

    - `uses`: what the job does with each of its streams.
    - `opened`: the exit stack that closes the clients and sinks of the checks.
    - `targets`: the streams that Kinesis sinks write to.
    - `deserializer`, `sink`: the objects that the job's program gave, each of them None if the properties name it.
    """

    def __init__(
        self,
        registry: Registry,
        properties: Properties,
        uses: dict[str, StreamUse],
        opened: AsyncExitStack,
        targets: list[str],
        deserializer: DeserializerArgument[Any] | None = None,
        sink: Sink | None = None,
    ) -> None:
        self._deserializer = deserializer
        self._sink = sink
        self._registry = registry
        # A plugin retries its calls by this property. Its check would be cut off, and would not name the error of the call.
        self._properties = properties.merged({MAX_OUTAGE.key: 0})
        self._uses = uses
        self._opened = opened
        self._targets = targets
        self._sources = [] if has_source_with_checks(registry, properties) else [*uses]
        self._client: ManagementClient | None = None
        self._unreachable: set[str] = set()

    async def job_findings(self) -> list[Finding]:
        """Return the findings about the streams, the store, the sinks, other processes and the lag.

        While the streams are checked, the stored positions are watched, because they show whether the job is running.
        """
        job = JobChecks(self._registry, self._properties, self._opened, self._deserializer, self._sink)
        of_stores = [*await job.store_findings(), *await job.sink_findings()]
        running = asyncio.create_task(job.running_finding())
        try:
            of_streams = await self.stream_findings()
            if not running.done() and sys.stderr.isatty():
                print_note("waiting for the next stored positions, to see whether another process runs the job")
            client = self._client
            readable = [stream for stream in self._sources if stream not in self._unreachable]
            lags = [] if client is None else [await job.lag_finding(stream, client) for stream in readable]
            return [*of_streams, *of_stores, await running, *lags, *self._glue()]
        finally:
            running.cancel()

    async def stream_findings(self) -> list[Finding]:
        """Return the findings about this machine, the connection to the services, and the streams.

        If the services cannot be reached, the streams are not checked.
        """
        own, findings = await self._own_source()
        findings = [*await version_findings(), *findings, *await self._wrapper_findings()]
        try:
            endpoints = self._endpoints(own)
        except ConfigurationError as error:  # The ARN is not of a stream of Kinesis.
            return [*findings, failed_finding("streams", error)]
        of_aws = await aws_findings(self._properties, [*self._sources, *self._targets]) if self._needs_aws() else []
        findings += of_aws
        if of_aws and not any(each.verdict is Verdict.PROBLEM for each in of_aws):
            findings += await service_findings(self._properties, self._services())
        if own is None and any(each.name == REGION_CHECK and each.verdict is Verdict.PROBLEM for each in of_aws):
            return [*findings, Finding(CONNECTION_PREFIX, Verdict.NOT_CHECKED, f"because of {REGION_CHECK}")]
        network = await network_findings(endpoints)
        findings += network
        if any(each.name.startswith(CONNECTION_PREFIX) and each.verdict is Verdict.PROBLEM for each in network):
            return findings
        if own is not None:
            for stream in self._uses:
                findings += await own.findings(stream)
        if any(each.name == CREDENTIALS and each.verdict is Verdict.PROBLEM for each in of_aws):
            because = f"because of {CREDENTIALS}"
            return [*findings, *(Finding(each, Verdict.NOT_CHECKED, because) for each in self._sources + self._targets)]
        return findings + await self._of_kinesis()

    async def _own_source(self) -> tuple[SourceWithChecks | None, list[Finding]]:
        try:
            own = source_with_checks_of(self._registry, self._properties)
        except Exception as error:  # The constructor of a plugin may raise any error.
            return None, [failed_finding("publisher", error)]
        if own is not None:
            self._opened.push_async_callback(own.close)
        return own, []

    async def _wrapper_findings(self) -> list[Finding]:
        """If the publisher wraps another one, as ARCHIVE does, return the findings of the wrapper's own checks. Else return no findings."""
        try:
            wrapper = wrapper_of(self._registry, self._properties)
        except Exception as error:  # The constructor of a plugin may raise any error.
            return [failed_finding("publisher", error)]
        if wrapper is None:
            return []
        self._opened.push_async_callback(wrapper.close)
        return [finding for stream in self._uses for finding in await wrapper.findings(stream)]

    def _endpoints(self, own: SourceWithChecks | None) -> dict[str, FindEndpoint]:
        endpoints = kinesis_endpoints(self._properties, [*self._sources, *self._targets])
        if own is not None:
            endpoints[own.name] = own.endpoint_url
        return endpoints

    def _needs_aws(self) -> bool:
        """Return whether region and credentials of AWS are needed. A plugin may read from another service."""
        return bool(self._services()) or self._properties.value(RECORD_PUBLISHER) == "QUEUE"

    def _services(self) -> dict[str, str | None]:
        """Return each service that is called, by the SDK's name, with the endpoint that the properties set, or None."""
        given, of_state = self._properties, self._properties.value(STATE_ENDPOINT)
        of_places = {back_end_of(value).aws_service for value in given.values()}
        of_stores = [each.aws_service for each in BACK_ENDS.values() if each.aws_service is not None]
        is_glue = (given.value(DESERIALIZER) or "").lower() == "glue"
        used: dict[str, tuple[bool, str | None]] = {
            "kinesis": (bool(self._sources or self._targets), given.value(ENDPOINT)),
            "dynamodbstreams": (given.value(RECORD_PUBLISHER) == "DYNAMODB_STREAMS", given.value(ENDPOINT)),
            **{service: (service in of_places, of_state) for service in of_stores},
            "glue": (is_glue, given.value(GLUE_ENDPOINT)),
        }
        return {service: endpoint for service, (is_used, endpoint) in used.items() if is_used}

    async def _of_kinesis(self) -> list[Finding]:
        streams = [*self._sources, *self._targets]
        if not streams:
            return []
        try:
            client = ManagementClient(self._properties, streams)
        except ConfigurationError:  # One of the findings says which setting is wrong.
            return []
        self._client = await self._opened.enter_async_context(client)
        endpoints = kinesis_endpoints(self._properties, streams)
        knows = {service: _is_of_aws(await find()) for service, find in endpoints.items()}
        findings, largest = [], 0
        uses = {stream: self._uses[stream] for stream in self._sources}
        for stream in [*self._sources, *self._targets]:
            use = uses.get(stream) or StreamUse(reads=False, writes=("PutRecords",), copied_bytes=largest or None)
            service = service_and_region(self._properties, stream)
            checks = StreamChecks(client, stream, use, SystemClock(), knows_dry_run=knows[service])
            findings += await checks.findings()
            self._unreachable |= {stream} if checks.is_unreachable else set()
            knows[service] = checks.knows_dry_run
            largest = max(largest, (checks.max_record_bytes or 0) if stream in uses else 0)
        return findings

    def _glue(self) -> list[Finding]:
        if (self._properties.value(DESERIALIZER) or "").lower() != "glue":
            return []
        words = "only records name schema versions, so the permission cannot be tried before the job runs: look at the IAM policy"
        return [Finding("glue:GetSchemaVersion", Verdict.NOT_CHECKED, words)]


async def all_findings(
    properties: Properties,
    uses: dict[str, StreamUse],
    *,
    has_job: bool,
    deserializer: DeserializerArgument[Any] | None = None,
    sink: Sink | None = None,
) -> list[Finding]:
    """Return every finding, in the order in which they are printed.

    - `has_job`: whether the job's store and sinks are checked too.
    - `deserializer`, `sink`: the objects that the job's program gave, each of them None if the properties name it.
    """
    try:
        registry = load_registry()
    except PluginError as error:
        return [failed_finding("plugins", error)]
    settings = await settings_findings(registry, properties, [*uses], deserializer, sink)
    async with AsyncExitStack() as opened:
        targets = _targets(properties) if has_job else []
        examination = Examination(registry, properties, uses, opened, targets, deserializer, sink)
        return without_repeated_problems(
            [*settings, *await (examination.job_findings() if has_job else examination.stream_findings())]
        )


def _is_of_aws(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith(AWS_ENDPOINT_ENDINGS)


def _targets(properties: Properties) -> list[str]:
    """Return the streams that Kinesis sinks write to, including the sink for dead letters."""
    sinks = {SINK: SINK_STREAM.key}
    if properties.value(ON_BAD_RECORD) == "DEAD_LETTER":
        sinks[DEAD_LETTER_SINK] = DEAD_LETTER.key + SINK_STREAM.key.removeprefix("flink.sink.")
    named = [properties.get(key) for sink, key in sinks.items() if (properties.value(sink) or "").lower() == "kinesis"]
    return [*dict.fromkeys(each for each in named if each)]


async def settings_findings(
    registry: Registry,
    properties: Properties,
    streams: list[str],
    deserializer: DeserializerArgument[Any] | None = None,
    sink: Sink | None = None,
) -> list[Finding]:
    """Check the properties, including those that plugins declare, and the plugins that the properties name.

    The plugins of sink and store are left out, because they have checks of their own. The chosen publisher checks whether it can use the
    properties.
    """
    return [
        await examine("properties", lambda: _properties(properties, streams, registry, sink)),
        await examine("plugins", lambda: _plugins(registry, properties, deserializer)),
    ]


def _properties(properties: Properties, streams: list[str], registry: Registry, sink: Sink | None) -> str:
    all_imported = not check_properties(registry, properties)
    ineffective = [told for key in properties if (told := why_without_effect(key, all_imported))]
    with suppress(PluginError):  # Another finding reports a publisher that cannot be imported.
        if (publisher := _publisher(registry, properties)) is not None:
            check_source(publisher, properties, streams)
    unread = unread_settings(registry, properties, sink)
    if ineffective:
        raise RecordPublisherError("; ".join([*ineffective, *unread]))
    return "; ".join(["valid", *unread])


def _publisher(registry: Registry, properties: Properties) -> type[RecordSource] | None:
    try:
        return source_class(registry, properties)
    except ConfigurationError:  # The publisher is not installed, which another finding reports.
        return None


def _plugins(registry: Registry, properties: Properties, deserializer: DeserializerArgument[Any] | None) -> str:
    named: tuple[tuple[NameTable[Any], Property[Any]], ...] = (
        (registry.publishers, RECORD_PUBLISHER),
        (registry.watermark_strategies, WATERMARK_STRATEGY),
    )
    for plugins, key in named:
        plugins.get(properties.value(key), key.key)
    check_reading(registry, properties)
    # A job that does not use a clashing name runs, with a warning. The examination must report the clash nevertheless.
    if clashes := [clash for table in registry.tables().values() for clash in table.clashes()]:
        raise PluginError("; ".join(clashes))
    values = properties.value(DESERIALIZER) or ""
    if deserializer is not None:
        made = value_type_made_by(deserializer_of(deserializer))
        values = "a deserializer of the program" if made is None else type_name(made)
    used = ", ".join([*(properties.value(key) for _, key in named), values])
    return "; ".join([used, *registry.not_blocked])
