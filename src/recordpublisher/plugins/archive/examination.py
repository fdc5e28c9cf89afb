"""Says whether an archive can be read back, and from when, for `recordpublisher doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recordpublisher.fetcher.shards.retention_check import UNKNOWN_MS, Gap
from recordpublisher.fetcher.shards.shard_state import latest
from recordpublisher.publishers.errors import RecordPublisherError, StateError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.times import iso_time
from recordpublisher.publishers.shards import Shard

from .archive import Archive
from .publisher import arrived, text_of_early_end, text_of_missing_shard
from .ranges import Place, RangeFile, is_complete

_MOST_NAMED = 5
"""How many shards that begin later than others are named."""


async def examine(archive: Archive, stream: str) -> str:
    """Return how much the archive has of a stream, and from when on all of its shards.

    Raises: StateError if files are missing between others, at the beginning of a shard whose parents were archived, at the end of a
    shard, or between the last file and the live stream; ConfigurationError if files have no ranges; the errors of the catalogue.
    """
    documents = await archive.documents(stream)
    if not documents:
        raise StateError(f"{archive.catalogue.place} has no shard of {stream}")
    unlisted = await _unlisted(archive, stream)
    shards = await archive.shards(stream)
    files = {name: await archive.catalogue.files(shards[name], again=False) for name in documents}
    for name, document in documents.items():
        place, hole = _reached(files[name])
        if hole is None and files[name] and not files[name][0].follows(None):
            hole = files[name][0] if await archive.parents_open_ms(shards[name]) is not None else None
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
    """List the stream. Return in words that this failed, which other checks report: the archive alone is examined then."""
    try:
        await archive.catch_up(stream)
    except RecordPublisherError as error:
        return f"; not compared with the stream, which cannot be listed: {error}"
    return ""


async def _check_end(archive: Archive, shard: Shard, place: Place, files: Sequence[RangeFile]) -> None:
    """Check that the live stream still has what follows the last file, as a job does that reads both.

    Raises: StateError if the stream has it no more.
    """
    assert archive.retention is not None
    last = max(files, key=lambda file: file.through)
    if not await archive.is_live_now(shard):
        raise StateError(text_of_missing_shard(shard, str(last.end)))
    if await archive.retention.gap_after(shard, last.end, UNKNOWN_MS) is not Gap.LOST:
        return
    # The oldest record of the stream is a later one. Nothing came in between if the last archived one is younger than the retention, or
    # if the job that wrote the archive has seen the end of the shard since.
    arrival_ms = await _arrival_ms(archive, max((file for file in files if file.paths), key=_through, default=last), -1)
    seen_ms = latest(arrival_ms, await archive.tip_ms(shard, place, again=False))
    if seen_ms is not None and await archive.retention.gap_after(shard, last.end, seen_ms) is not Gap.LOST:
        return
    oldest = await archive.oldest_record(shard)
    raise StateError(text_of_early_end(shard, f"{last.end}{arrived(arrival_ms)}", oldest))


async def _since(archive: Archive, shards: Mapping[str, Shard], files: Mapping[str, Sequence[RangeFile]]) -> str:
    """Return from when all shards are there in words, and which shards begin later than others because they have no older files."""
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


def _through(file: RangeFile) -> Place:
    return file.through


def _reached(files: Sequence[RangeFile]) -> tuple[Place | None, RangeFile | None]:
    """Return how far the ranges reach without a hole, and the first one behind a hole."""
    place: Place | None = None
    for file in files:
        if place is not None and not file.follows(place):
            return place, file
        place = file.through if place is None else max(place, file.through)
    return place, None


async def _arrival_ms(archive: Archive, file: RangeFile, row: int) -> int | None:
    """Return when the first (0) or the last (-1) record of a file arrived (epoch ms), or None if it has no record."""
    opened = await archive.catalogue.open(file)
    try:
        rows = await opened.rows(opened.groups - 1 if row else 0) if opened.groups else None
        return None if rows is None or not len(rows) else rows.arrival_millis[row]
    finally:
        opened.close()
