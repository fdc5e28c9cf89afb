"""Makes the publishers of an archive, and wraps the factory of the live stream (`flink.stream.recordpublisher=ARCHIVE`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from recordpublisher.publishers.base import Checks, RecordPublisherFactory, RecordSource
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.groups.job import ACCEPTS_LOSS, ON_DATA_LOSS, SUBTASK_BYTES
from recordpublisher.publishers.properties.groups.reading import (
    ARCHIVE_LIVE,
    ARCHIVE_UNPROVEN,
    ARCHIVE_URI,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..host.manager import publisher_class
from ..runtime.stream_lister import StreamLister
from ..runtime.stream_names import stream_names
from .archive import Archive, LiveLister
from .catalogue import DELTA, ICEBERG, Catalogue, FileCatalogue, files_at
from .examination import examine
from .publisher import ArchivePublisher
from .ranges import OrderOf

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis import KinesisClient

_NONE = "NONE"


class ArchiveFactory(RecordPublisherFactory):
    """Makes the publishers of one job that reads an archive first. Owns the catalogue of the archive, and the live factory.

    - `live`, `lister`, `catalogue`, `clock`: replaced in tests.

    Raises: ConfigurationError if a property is invalid, or if the archive is not there.
    """

    finds_gaps = True
    keyless = True

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        live: RecordPublisherFactory | None = None,
        lister: LiveLister | None = None,
        catalogue: Catalogue | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = properties if isinstance(properties, Properties) else Properties(properties)
        self._clock = clock or SystemClock()
        if live is None and (made := _live_class(given)) is not None:
            live = made(given)  # type: ignore[call-arg]
        self._live = live
        self.ends_open_shards = live is not None and live.ends_open_shards
        self._names: dict[str, str] = {}
        self._own_lister: StreamLister | None = None
        if lister is None and self._live is not None:
            lister = self._own_lister = StreamLister(self._live, given, self._names, self._clock)
        is_default = self._live is None or type(self._live).order_of is RecordPublisherFactory.order_of
        # The rows of a file are compared as texts if numbers have the order of Kinesis.
        order_of = int if is_default else self.order_of
        catalogue = catalogue or _catalogue(_uri(given), given, order_of)
        self._archive = Archive(
            catalogue,
            self._live,
            lister,
            order_of,
            self._clock,
            buffer_bytes=2 * given.value(SUBTASK_BYTES),
            accepts_loss=ACCEPTS_LOSS[given.value(ON_DATA_LOSS)],
            allows_unproven=given.value(ARCHIVE_UNPROVEN),
        )
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    def wrapped(cls, properties: Properties) -> type[RecordSource]:
        """Return the class that reads the live stream, or this class if the job ends with the archive."""
        made = _live_class(properties)
        return cls if made is None else made.wrapped(properties)

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check the archive's location, and the properties of the live publisher. Raises: ConfigurationError if one is invalid."""
        _uri(properties)
        if (made := _live_class(properties)) is not None:
            made.check(properties, streams)

    @property
    def lists_shards(self) -> bool:
        """Whether the archive, or a live publisher with a source of its own, lists the shards."""
        return self._live is None or self._live.lists_shards

    def prepare(self, streams: Sequence[str]) -> None:
        """Prepare the live factory."""
        self._names.update(stream_names(list(streams)))
        if self._live is not None:
            self._live.prepare(streams)

    async def create(
        self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics
    ) -> ArchivePublisher:
        """Make a publisher of the shard. Nothing is read yet."""
        self._names.setdefault(shard.stream, shard.stream_arn or shard.stream)
        if self._watching is None and self._live is not None:
            self._watching = asyncio.create_task(self._archive.suspension.run(), name="watch for suspensions")
        return ArchivePublisher(self._archive, shard, starting_position, metrics)

    async def release(self, stream: str) -> None:
        """Release the stream's resources of the live factory."""
        if self._live is not None:
            await self._live.release(stream)

    def keep_shared(self) -> None:
        """Keep the shared resources of the live factory at `close`."""
        if self._live is not None:
            self._live.keep_shared()

    async def discover(self, stream: str, after: str | None) -> Sequence[Shard] | None:
        """List the shards of the archive if the job ends with it, or those of a live publisher with a source of its own."""
        if self._live is not None:
            return await self._live.discover(stream, after)
        shards = sorted((await self._archive.shards(stream)).items())
        return [shard for name, shard in shards if after is None or name > after]

    async def unlisted_shards(self, stream: str, listed: Sequence[Shard]) -> Sequence[Shard]:
        """Return the archived shards that the stream does not list, and listed ones whose parents only the archive knows."""
        if self._live is None:
            return ()
        self._archive.on_listed(stream, listed)
        known = {shard.shard_id: shard for shard in listed}
        found = await self._archive.shards(stream)
        return [shard for name, shard in found.items() if name not in known or known[name].parents != shard.parents]

    def order_of(self, sequence: str) -> Any:
        """Return the order that the live factory gives to a sequence number."""
        return int(sequence) if self._live is None else self._live.order_of(sequence)

    def shared_client(self, streams: Sequence[str]) -> KinesisClient | None:
        """Return the client of the live factory, or None if it does not use Kinesis."""
        shared = getattr(self._live, "shared_client", None)
        client: KinesisClient | None = None if shared is None else shared(streams)
        return client

    async def endpoint_url(self) -> str | None:
        """Return the URL that the live factory calls."""
        return None if self._live is None else await self._live.endpoint_url()

    def checks(self, stream: str) -> Checks:
        """Return the checks of the live factory, and one of the archive, which compares it with the stream."""
        ((name, given),) = stream_names(stream).items()
        self._names[name] = given

        async def archive() -> str:
            return await examine(self._archive, name)

        return {"archive": archive, **({} if self._live is None else self._live.checks(name))}

    async def close(self) -> None:
        """Close the live factory and the archive."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        try:
            if self._live is not None:
                await self._live.close()
        finally:
            if self._own_lister is not None:
                await self._own_lister.close()
            await self._archive.close()


def _uri(properties: Properties) -> str:
    uri = properties.value(ARCHIVE_URI)
    if uri is None:
        raise ConfigurationError(
            ARCHIVE_URI.key,
            None,
            "a folder, s3://bucket/prefix, gs://, abfss://, delta:LOCATION or iceberg:namespace.table",
            reason="it is what ARCHIVE reads",
        )
    return uri


def _catalogue(uri: str, properties: Properties, order_of: OrderOf) -> Catalogue:
    if uri.startswith((DELTA, ICEBERG)):
        from .tables import table_files  # Imported here because it loads the library of the table's format.

        return FileCatalogue(table_files(uri, properties, order_of), order_of)
    return FileCatalogue(files_at(uri, properties, order_of), order_of)


def _live_class(properties: Properties) -> type[RecordPublisherFactory] | None:
    name = properties.as_given(ARCHIVE_LIVE)
    if name.upper() == _NONE:
        return None
    if name.upper() == "ARCHIVE":
        raise ConfigurationError(ARCHIVE_LIVE.key, name, "POLLING, EFO, the name of a plugin's publisher, or NONE")
    return publisher_class(name)
