"""Checks a source that does not read shards of Kinesis, such as QUEUE or DYNAMODB_STREAMS, with the source's own checks."""

from recordpublisher.plugins.host.build_from_properties import build_source, source_class
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.publishers.base import RecordPublisherFactory, RecordSource, own_shards
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.reading import LIST_SHARDS_RETRIES, RECORD_PUBLISHER
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.stream_arns import stream_name

from .findings import Finding, NotCheckedError, Verdict, examine, examine_all


class OwnSource:
    """Owns a queue, or the factory of a publisher that lists its streams itself (`discover`)."""

    def __init__(self, name: str, source: RecordSource) -> None:
        self.name = name
        self._source = source

    async def endpoint_url(self) -> str:
        """Return the endpoint that its publishers call. Raises: NotCheckedError if the source does not report it."""
        url = await self._source.endpoint_url()
        if url is None:
            raise NotCheckedError(f"{self.name} does not tell where it calls")
        return url

    async def findings(self, stream: str) -> list[Finding]:
        """Return the findings of the publisher's own checks, or, if it has none, whether it lists shards."""
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
    """Return whether the job reads a queue, or its publisher lists its streams itself.

    The result is False if the publisher is not installed, which another finding reports.
    """
    try:
        made = source_class(registry, properties).wrapped(properties)
    except RecordPublisherError:
        return False
    return not issubclass(made, RecordPublisherFactory) or made.discover is not RecordPublisherFactory.discover


def wrapper_of(registry: Registry, properties: Properties) -> OwnSource | None:
    """Return the job's publisher if it wraps the one that reads the streams, as ARCHIVE does, else None.

    Raises: any error of the plugin's factory.
    """
    try:
        made = source_class(registry, properties)
        if made.wrapped(properties) is made:
            return None
    except RecordPublisherError:
        return None
    return OwnSource(properties.as_given(RECORD_PUBLISHER), build_source(registry, properties, made))


def own_source_of(registry: Registry, properties: Properties) -> OwnSource | None:
    """Return the job's own source, or None if it reads shards of Kinesis. Raises: any error of the plugin's factory."""
    if not has_own_source(registry, properties):
        return None
    own = properties.merged({LIST_SHARDS_RETRIES.max_retries.key: 0})
    return OwnSource(own.as_given(RECORD_PUBLISHER), build_source(registry, own, source_class(registry, own)))
