"""Makes the publishers of an archive, and wraps the factory of the live stream (`flink.stream.recordpublisher=ARCHIVE`).

It also says whether an archive can be read back, and from when, for `recordpublisher doctor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.shards.retention_check import UNKNOWN_MS, RetentionGap
from recordpublisher.publishers.base import Checks, RecordPublisherFactory, RecordSource
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError, StateError, StreamNotFoundError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.job_properties import ACCEPTS_LOSS, JOB_WORKERS, ON_DATA_LOSS, WORKER_BYTES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ARCHIVE_LIVE, ARCHIVE_UNPROVEN, ARCHIVE_URI
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..host.plugin_loading import publisher_class
from ..runtime.shard_lister import ShardLister
from ..runtime.stream_names import stream_names
from ..stores.back_ends import FOLDER, OBJECT_STORES, forms_of
from .archive import DELTA, ICEBERG, Archive, Catalogue, FileCatalogue, LiveLister, files_at
from .next_step import OrderKey, OrderOf, RangeFile, is_complete
from .publisher import ArchivePublisher, arrival_text, text_of_early_end, text_of_missing_shard

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis import KinesisClient

_NONE = "NONE"


class ArchiveFactory(RecordPublisherFactory):
    """Makes the publishers of a job that reads an archive first.

    It owns the archive, and the live factory, which makes the publishers of the live stream.

    - `live`, `lister`, `catalogue`, `clock`: given only by tests.

    Raises: ConfigurationError if a property is invalid, or if the archive does not exist.
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
        self._own_lister: ShardLister | None = None
        if lister is None and self._live is not None:
            lister = self._own_lister = ShardLister(self._live, given, self._names, self._clock)
        is_default = self._live is None or type(self._live).order_of is RecordPublisherFactory.order_of
        # `int` itself, because readers compare sequence numbers as texts, which is faster, only if their order is `int`.
        order_of = int if is_default else self.order_of
        catalogue = catalogue or _catalogue(_uri(given), given, order_of)
        self._archive = Archive(
            catalogue,
            self._live,
            lister,
            order_of,
            self._clock,
            buffer_bytes=2 * given.value(WORKER_BYTES),
            accepts_loss=ACCEPTS_LOSS[given.value(ON_DATA_LOSS)],
            allows_unproven=given.value(ARCHIVE_UNPROVEN),
        )
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    def wrapped(cls, properties: Properties) -> type[RecordSource]:
        """Return the source class of the live stream, or this class if `flink.archive.live` is NONE."""
        made = _live_class(properties)
        return cls if made is None else made.wrapped(properties)

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check the location of the archive, and the properties of the live publisher.

        Raises: ConfigurationError if one is invalid, or if a group would read an archive without a live stream.
        """
        _uri(properties)
        if (made := _live_class(properties)) is not None:
            made.check(properties, streams)
        elif properties.value(JOB_WORKERS) == "GROUP":
            # No process of a group knows whether the others have read everything, so the job would wait for ever.
            reason = f"a group never ends. Read the archive with one process, or set {ARCHIVE_LIVE.key}=POLLING to continue in the stream"
            raise ConfigurationError.conflict(
                JOB_WORKERS.key, f"{ARCHIVE_LIVE.key}={_NONE}", value="GROUP", reason=reason
            )

    @property
    def lists_shards(self) -> bool:
        """Whether the factory lists the shards itself. True without a live stream; else as the live factory says."""
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
        """Let the live factory release the resources of a stream."""
        if self._live is not None:
            await self._live.release(stream)

    def keep_shared(self) -> None:
        """Let the live factory keep its shared resources at `close`."""
        if self._live is not None:
            self._live.keep_shared()

    async def discover(self, stream: str) -> Sequence[Shard] | None:
        """Return the shards that the live factory lists. Without a live stream, return the archive's shards.

        Raises: StreamNotFoundError if there is no live stream, and the archive has no shard of it. A job would wait for one for ever.
        """
        if self._live is not None:
            return await self._live.discover(stream)
        if not (found := await self._archive.shards(stream)):
            place = f"the archive {self._archive.catalogue.place}, which has other streams or none"
            raise StreamNotFoundError(stream, place=place)
        return [shard for _, shard in sorted(found.items())]

    async def unlisted_shards(self, stream: str, listed: Sequence[Shard]) -> Sequence[Shard]:
        """Return the archived shards that the stream does not list, and the listed shards whose parents only the archive knows."""
        if self._live is None:
            return ()
        self._archive.on_listed(stream, listed)
        known = {shard.shard_id: shard for shard in listed}
        found = await self._archive.shards(stream)
        return [shard for name, shard in found.items() if name not in known or known[name].parents != shard.parents]

    def order_of(self, sequence: str) -> Any:
        """Return the value by which the live factory sorts a sequence number."""
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
        """Return the checks of the live factory, and a check that compares the archive with the stream."""
        ((name, given),) = stream_names(stream).items()
        self._names[name] = given

        async def archive() -> str:
            return await examine_archive(self._archive, name)

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
            forms_of([FOLDER, *OBJECT_STORES], "delta:LOCATION", "iceberg:namespace.table"),
            reason="the publisher ARCHIVE reads it",
        )
    return uri


def _catalogue(uri: str, properties: Properties, order_of: OrderOf) -> Catalogue:
    if uri.startswith((DELTA, ICEBERG)):
        from .table_files import table_files  # Imported here because it loads the library of the table's format.

        return FileCatalogue(table_files(uri, properties, order_of), order_of)
    return FileCatalogue(files_at(uri, properties, order_of), order_of)


def _live_class(properties: Properties) -> type[RecordPublisherFactory] | None:
    name = properties.as_given(ARCHIVE_LIVE)
    if name.upper() == _NONE:
        return None
    if name.upper() == "ARCHIVE":
        raise ConfigurationError(ARCHIVE_LIVE.key, name, "POLLING, EFO, the name of a plugin's publisher, or NONE")
    return publisher_class(name)


# --- the check of an archive by `recordpublisher doctor` ---

_MOST_NAMED = 5
"""In the result of `examine_archive`, at most this many shards that begin later than others are named."""


async def examine_archive(archive: Archive, stream: str) -> str:
    """Return in words how much of a stream the archive has, and since when it has all shards.

    Raises: ConfigurationError if file names have no ranges; the errors of the catalogue; StateError if records are missing in one of these
    places:

    - between two files
    - at the beginning of a shard whose parents were archived
    - at the end of a shard
    - between the last file and the live stream
    """
    documents = await archive.documents(stream)
    if not documents:
        raise StateError(
            f"the archive {archive.catalogue.place} has no shard of {stream}: is it the archive of another stream?"
        )
    unlisted = await _unlisted(archive, stream)
    shards = await archive.shards(stream)
    files = {name: await archive.catalogue.files(shards[name], again=False) for name in documents}
    for name, document in documents.items():
        place, hole = _reached(files[name])
        if hole is None and files[name] and not files[name][0].follows(None):
            hole = files[name][0] if await archive.parents_last_open_ms(shards[name]) is not None else None
        if hole is not None:
            raise StateError(
                f"the archive {archive.catalogue.place} is incomplete: some records of {stream}/{name} before {hole.after_text} are in no "
                "file"
            )
        is_ended = document.end is not None and is_complete(place, document.end.through, archive.order_of, is_owed=True)
        if files[name] and document.end and not is_ended:
            raise StateError(
                f"the archive {archive.catalogue.place} is incomplete: the last records of {stream}/{name}, up to its end at "
                f"{document.end.through}, are in no file"
            )
        if place is not None and not is_ended and archive.live is not None and not unlisted:
            await _check_end(archive, shards[name], place, files[name])
    count = sum(map(len, files.values()))
    since = await _since(archive, shards, files)
    return f"{counted(len(documents), 'shard')}, {counted(count, 'range')}{since}; nothing is missing between them{unlisted}"


async def _unlisted(archive: Archive, stream: str) -> str:
    """List the live stream. Return an empty text, or if the call fails, the end of a sentence about the error.

    Other checks report the error, and the archive can be examined without the stream.
    """
    try:
        await archive.list_once(stream)
    except RecordPublisherError as error:
        return f"; not compared with the stream, which cannot be listed: {error}"
    return ""


async def _check_end(archive: Archive, shard: Shard, place: OrderKey, files: Sequence[RangeFile]) -> None:
    """Check that the live stream still has the records after `place`, where the last file ends.

    Raises: StateError if it no longer has them.
    """
    assert archive.retention is not None
    last = max(files, key=lambda file: file.through)
    if not await archive.is_live_now(shard):
        raise StateError(text_of_missing_shard(shard, str(last.end)))
    if await archive.retention.gap_after(shard, last.end, UNKNOWN_MS) is not RetentionGap.LOST:
        return
    # The oldest record of the stream is after the last archived one. Nothing is missing between them if the last archived record is
    # younger than the retention, or if the writing job has since seen that no record followed it.
    arrival_ms = await _arrival_ms(archive, max((file for file in files if file.paths), key=_through, default=last), -1)
    seen_ms = latest(arrival_ms, await archive.tip_ms(shard, place, again=False))
    if seen_ms is not None and await archive.retention.gap_after(shard, last.end, seen_ms) is not RetentionGap.LOST:
        return
    oldest = await archive.oldest_record(shard)
    raise StateError(text_of_early_end(shard, f"{last.end}{arrival_text(arrival_ms)}", oldest))


async def _since(archive: Archive, shards: Mapping[str, Shard], files: Mapping[str, Sequence[RangeFile]]) -> str:
    """Return in words since when all shards are complete, and which shards begin later because their older files are missing."""
    begins: list[int] = []
    later: list[tuple[int, str]] = []
    for name, found in files.items():
        is_first = found and not any(files.get(each) for each in shards[name].parents)
        if not found or not (is_first or found[0].is_continuation):
            continue
        if (ms := await _arrival_ms(archive, next((file for file in found if file.paths), found[0]), 0)) is not None:
            begins.append(ms)
            if found[0].is_continuation:
                later.append((ms, name))
    if not begins:
        return ""
    later = sorted(((ms, name) for ms, name in later if ms > min(begins)), reverse=True)
    if not later:
        return f", from {iso_time(min(begins))}"
    named = ", ".join(f"{name} from {iso_time(ms)}" for ms, name in later[:_MOST_NAMED])
    more = f" and {counted(len(later) - _MOST_NAMED, 'more shard')}" if len(later) > _MOST_NAMED else ""
    return f", all from {iso_time(later[0][0])} (the first from {iso_time(min(begins))}; older files are missing: {named}{more})"


def _through(file: RangeFile) -> OrderKey:
    return file.through


def _reached(files: Sequence[RangeFile]) -> tuple[OrderKey | None, RangeFile | None]:
    """Return the position up to which no file is missing, and the first file after the gap (None if there is no gap)."""
    place: OrderKey | None = None
    for file in files:
        if place is not None and not file.follows(place):
            return place, file
        place = file.through if place is None else max(place, file.through)
    return place, None


async def _arrival_ms(archive: Archive, file: RangeFile, row: int) -> int | None:
    """Return when a record of a file arrived (epoch ms), or None if there is none. `row`: 0 for the first record, -1 for the last."""
    opened = await archive.catalogue.open(file)
    try:
        rows = await opened.rows(opened.groups - 1 if row else 0) if opened.groups else None
        return None if rows is None or not len(rows) else rows.arrival_millis[row]
    finally:
        opened.close()
