"""OwnSource: what doctor says of a publisher that reads something else than Kinesis, such as DYNAMODB_STREAMS: by its own checks."""

from recordpublisher.plugins.host.build_from_properties import publisher_class
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.publishers.base import RecordPublisherFactory, own_shards
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.publisher import RECORD_PUBLISHER
from recordpublisher.publishers.properties.groups.retries import LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.stream_arns import stream_name

from .findings import Finding, NotCheckedError, Verdict, examine, examine_all


class OwnSource:
    """Owns the factory of a publisher that lists its streams itself (`discover`)."""

    def __init__(self, name: str, factory: RecordPublisherFactory) -> None:
        self.name = name
        self._factory = factory

    async def endpoint_url(self) -> str:
        """Where its publishers call. Raises: NotCheckedError when it does not tell."""
        url = await self._factory.endpoint_url()
        if url is None:
            raise NotCheckedError(f"{self.name} does not tell where it calls")
        return url

    async def findings(self, stream: str) -> list[Finding]:
        """What the publisher checks itself; without any checks, whether it lists shards."""
        table = stream_name(stream)
        if checks := self._factory.checks(table):
            return await examine_all(stream, checks)

        async def shards() -> str:
            return f"{self.name} lists {len(await own_shards(self._factory, table, None) or ())}"

        reading = Finding(f"{stream}: records", Verdict.NOT_CHECKED, f"{self.name} reads them first when the job runs")
        return [await examine(f"{stream}: shards", shards), reading]

    async def close(self) -> None:
        """Close the factory."""
        await self._factory.close()


def has_own_source(registry: Registry, properties: Properties) -> bool:
    """Whether the job's publisher lists its streams itself. One that is not installed does not; another finding names it."""
    try:
        made = publisher_class(registry, properties)
    except RecordPublisherError:
        return False
    return made.discover is not RecordPublisherFactory.discover


def own_source_of(registry: Registry, properties: Properties) -> OwnSource | None:
    """The job's own source, if it has one. Raises: whatever the factory of a plugin raises."""
    if not has_own_source(registry, properties):
        return None
    own = properties.merged({LIST_SHARDS_RETRIES.max_retries.key: 0})
    return OwnSource(own.as_given(RECORD_PUBLISHER), publisher_class(registry, own)(own))  # type: ignore[call-arg]
