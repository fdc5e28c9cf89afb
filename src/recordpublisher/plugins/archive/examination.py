"""Says whether an archive can be read back, and from when, for `recordpublisher doctor`."""

from __future__ import annotations

from collections.abc import Sequence

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.times import iso_time
from recordpublisher.publishers.shards import Shard

from .archive import Archive
from .ranges import Place, RangeFile, is_complete


async def examine(archive: Archive, stream: str) -> str:
    """Return how much the archive has of a stream, and from when on.

    Raises: StateError if files are missing between others, or at the end of a shard; ConfigurationError if files have no ranges; the
    errors of the catalogue.
    """
    documents = await archive.documents(stream)
    if not documents:
        raise StateError(f"{archive.catalogue.place} has no shard of {stream}")
    files = {name: await archive.catalogue.files(Shard(stream, name), again=False) for name in documents}
    for name, document in documents.items():
        place, hole = _reached(files[name])
        if hole is not None:
            raise StateError(
                f"the archive {archive.catalogue.place} is incomplete: some records of {stream}/{name} before {hole.after_text} are in no "
                "file"
            )
        if (
            files[name]
            and document.end
            and not is_complete(place, document.end.through, archive.order_of, is_owed=True)
        ):
            raise StateError(
                f"the archive {archive.catalogue.place} is incomplete: the last records of {stream}/{name}, up to its end at "
                f"{document.end.through}, are in no file"
            )
    first = [
        found[0]
        for name, found in files.items()
        if found and not any(files.get(each) for each in documents[name].parents)
    ]
    begins = [ms for file in first if (ms := await _first_arrival_ms(archive, file)) is not None]
    count = sum(map(len, files.values()))
    since = f", from {iso_time(min(begins))}" if begins else ""
    return f"{counted(len(documents), 'shard')}, {counted(count, 'range')}{since}; nothing is missing between them"


def _reached(files: Sequence[RangeFile]) -> tuple[Place | None, RangeFile | None]:
    """Return how far the ranges reach without a hole, and the first one behind a hole."""
    place: Place | None = None
    for file in files:
        if place is not None and not file.follows(place):
            return place, file
        place = file.through if place is None else max(place, file.through)
    return place, None


async def _first_arrival_ms(archive: Archive, file: RangeFile) -> int | None:
    opened = await archive.catalogue.open(file)
    try:
        rows = await opened.rows(0) if opened.groups else None
        return None if rows is None or not len(rows) else rows.arrival_millis[0]
    finally:
        opened.close()
