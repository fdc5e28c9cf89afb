"""Purging: a spool forgets what the query has read long ago."""

from __future__ import annotations

from recordpublisher.plugins.stores.ports import ObjectStore

from .names import FILES, GENERATIONS, MANIFESTS, failure_name, generation_name, place_of
from .offset import SpoolOffset


async def purge(store: ObjectStore, read: SpoolOffset) -> None:
    """Forget what lies before the steps that an offset names; those stay, since a lane's last step says where it stands.

    Whoever was shut out long ago may put a manifest into such a gap: it lies before every offset, so that nobody reads it, and it goes
    with the next purge. Raises: StateError.
    """
    old = [
        name
        for folder in (MANIFESTS, FILES)
        for name in await store.names(folder)
        if (place := place_of(name)) is not None
        and read.has_read(place)
        and not _is_end(read, place.generation, place.lane, place.number)
    ]
    current = generation_name(read.generation)
    generations = [name for name in await store.names(GENERATIONS) if name < current]
    failures = [failure_name(int(name.removeprefix(GENERATIONS))) for name in generations]
    await store.delete([*old, *generations, *failures])


def _is_end(read: SpoolOffset, generation: int, lane: int, number: int) -> bool:
    return generation == read.generation and read.lanes[lane] == number
