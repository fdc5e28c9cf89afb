"""OwnSource: what doctor says of a source that is no shards of Kinesis, such as QUEUE or DYNAMODB_STREAMS: by its own checks."""

from recordpublisher.plugins.host.build_from_properties import build_source, source_class
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.publishers.base import RecordPublisherFactory, RecordSource, own_shards
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.publisher import RECORD_PUBLISHER
from recordpublisher.publishers.properties.groups.retries import LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.stream_arns import stream_name

from .findings import Finding, NotCheckedError, Verdict, examine, examine_all


class OwnSource:
    """Owns a queue, or the factory of a publisher that lists its streams itself (`discover`)."""

    def __init__(self, name: str, source: RecordSource) -> None:
        self.name = name
        self._source = source

    async def endpoint_url(self) -> str:
        """Where its publishers call. Raises: NotCheckedError when it does not tell."""
        url = await self._source.endpoint_url()
        if url is None:
            raise NotCheckedError(f"{self.name} does not tell where it calls")
        return url

    async def findings(self, stream: str) -> list[Finding]:
        """What the publisher checks itself; without any checks, whether it lists shards."""
        table = stream_name(stream)
        if checks := self._source.checks(table):
            return await examine_all(stream, checks)

        reading = Finding(f"{stream}: records", Verdict.NOT_CHECKED, f"{self.name} reads them first when the job runs")
        if not isinstance(factory := self._source, RecordPublisherFactory):
            return [reading]

        async def shards() -> str:
            return f"{self.name} lists {len(await own_shards(factory, table, None) or ())}"

        return [await examine(f"{stream}: shards", shards), reading]

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()


def has_own_source(registry: Registry, properties: Properties) -> bool:
    """Whether the job reads a queue, or its publisher lists its streams itself. Another finding names one that is not installed."""
    try:
        made = source_class(registry, properties)
    except RecordPublisherError:
        return False
    return not issubclass(made, RecordPublisherFactory) or made.discover is not RecordPublisherFactory.discover


def own_source_of(registry: Registry, properties: Properties) -> OwnSource | None:
    """The job's own source, if it has one. Raises: whatever the factory of a plugin raises."""
    if not has_own_source(registry, properties):
        return None
    own = properties.merged({LIST_SHARDS_RETRIES.max_retries.key: 0})
    return OwnSource(own.as_given(RECORD_PUBLISHER), build_source(registry, own, source_class(registry, own)))
