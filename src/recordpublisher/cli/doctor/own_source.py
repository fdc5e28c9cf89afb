"""A stream of a publisher that reads something else than Kinesis, such as DYNAMODB_STREAMS: its shards are listed."""

from __future__ import annotations

from recordpublisher.plugins.host.registry import Registry
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import LIST_SHARDS_RETRIES, RECORD_PUBLISHER
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from .findings import Finding, NotCheckedError, Verdict, examine

OF_KINESIS = ("POLLING", "EFO")


async def own_source_findings(registry: Registry, properties: Properties, stream: str) -> list[Finding] | None:
    """The findings about a stream; None for a publisher of Kinesis, and for one that is not installed, which another finding names."""
    name = properties.value(RECORD_PUBLISHER) or ""
    if name in OF_KINESIS:
        return None
    try:
        made = registry.publishers.get(name, RECORD_PUBLISHER.key)
    except ConfigurationError:
        return None
    once = properties.merged({LIST_SHARDS_RETRIES.max_retries.key: 0})
    factory: RecordPublisherFactory = made(once)  # type: ignore[call-arg]
    listed: list[Shard] | None = None

    async def shards() -> str:
        nonlocal listed
        listed = await factory.discover(stream_name(stream), None)
        if listed is None:
            raise NotCheckedError(f"{name} leaves it to Kinesis")
        return f"{name} lists {len(listed)}"

    try:
        found = await examine(f"{stream}: shards", shards)
    finally:
        await factory.close()
    if found.verdict is Verdict.NOT_CHECKED:
        return None
    reading = Finding(f"{stream}: records", Verdict.NOT_CHECKED, f"{name} reads them first when the job runs")
    return [found, reading]
