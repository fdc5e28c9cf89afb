"""The history of a lane: manifests numbered from 1, each put where there is none yet, so that there is one history and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots, snapshot_to_json
from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.errors import StateError

from .generation import Generation
from .manifest import Kind, Manifest
from .names import Place, manifest_name, manifests_of, place_of

AT_ONCE = 16
"""How many lanes are asked for at once."""
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Step:
    """A manifest and its number."""

    number: int
    manifest: Manifest


async def read_step(store: ObjectStore, place: Place) -> Manifest:
    """The manifest of a place that has one. Raises: StateError."""
    stored = await store.get(manifest_name(place))
    if stored is None:
        raise StateError(f"the spool's {manifest_name(place)} is gone")
    return Manifest.from_bytes(stored)


async def read_steps(store: ObjectStore, places: Sequence[Place]) -> dict[Place, Manifest]:
    """The manifests of many places, some at once, without their states: each has one of all shards of its lane. Raises: StateError."""
    found: dict[Place, Manifest] = {}
    for start in range(0, len(places), AT_ONCE):
        part = places[start : start + AT_ONCE]
        read = await asyncio.gather(*(read_step(store, place) for place in part))
        found.update((place, replace(each, state=None, done=())) for place, each in zip(part, read, strict=True))
    return found


async def last_step(store: ObjectStore, generation: int, lane: int) -> Step | None:
    """Where a lane's history ends now."""
    names = await store.names(manifests_of(generation, lane))
    place = place_of(names[-1]) if names else None
    return None if place is None else Step(place.number, await read_step(store, place))


async def add_step(store: ObjectStore, place: Place, manifest: Manifest) -> Manifest:
    """Put a manifest; answers what stands there: the given one, or that of somebody who was first."""
    stored = await store.put_if_absent(manifest_name(place), content := manifest.to_bytes())
    return manifest if stored == content else Manifest.from_bytes(stored)


async def add_at_end(store: ObjectStore, generation: int, lane: int, kind: Kind, token: str, now_ms: int) -> Step:
    """Put a manifest without rows behind whatever is there; answers it, or the seal that stands at the lane's end."""
    last = await last_step(store, generation, lane)
    while last is None or last.manifest.kind is not Kind.SEALED:
        number, before = (0, None) if last is None else (last.number, last.manifest)
        carried = (None, ()) if before is None else (before.state, before.done)
        added = Manifest(kind, token, now_ms, *carried)
        last = Step(number + 1, await add_step(store, Place(generation, lane, number + 1), added))
        if last.manifest == added:
            break
    return last


async def last_steps(store: ObjectStore, generation: Generation) -> list[Step | None]:
    """Where every lane ended when they were listed."""
    named = filter(None, map(place_of, await store.names(manifests_of(generation.number))))
    ends = {place.lane: place for place in named}  # in the order of their numbers: the last one counts
    turn = asyncio.Semaphore(AT_ONCE)

    async def look(lane: int) -> Step | None:
        if lane not in ends:
            return None
        async with turn:
            stored = await store.get(manifest_name(ends[lane]))
            if stored is None:  # the query has read beyond it since, and it was purged
                return await last_step(store, generation.number, lane)
            return Step(ends[lane].number, Manifest.from_bytes(stored))

    return list(await asyncio.gather(*map(look, range(generation.lanes))))


async def sealed(store: ObjectStore, generation: Generation, token: str, now_ms: int) -> list[Step]:
    """End every lane; answers the seals, which have the lanes' last states.

    Whoever slept between the look for a lane's end and its seal may have put it where steps were purged meanwhile, and ended nothing. Then
    there are later ones, since the last step of a lane is never purged: the look is repeated behind the seal.
    """
    turn = asyncio.Semaphore(AT_ONCE)

    async def seal(lane: int) -> Step:
        async with turn:
            while True:
                step = await add_at_end(store, generation.number, lane, Kind.SEALED, token, now_ms)
                end = await last_step(store, generation.number, lane)
                if end is None or end.number <= step.number:
                    return step

    return list(await asyncio.gather(*map(seal, range(generation.lanes))))


def state_of(generation: Generation, ends: Iterable[Step | None]) -> State:
    """Where the lanes of a generation stand together, as one snapshot that is no subtask's own (S5).

    A shard that its lane keeps no more was read to its end and is past retention: where the generation began with it says nothing now.
    Nor does it for one that had ended before, once every lane has said what it has: nobody lists it any more.
    """
    manifests = [None if end is None else end.manifest for end in ends]
    states = [manifest.state for manifest in manifests if manifest is not None and manifest.state is not None]
    done = {key for manifest in manifests if manifest is not None for key in manifest.done}
    has_spoken = len(states) == len(manifests)
    began = {
        key: state
        for key, state in generation.state["shards"].items()
        if key not in done and not (has_spoken and state.get("ended"))
    }
    together = merge_snapshots([{**generation.state, "shards": began}, *states])
    return snapshot_to_json(together.shards, together.pinned_ms, together.generation, NOBODY, generation.lanes)
