"""Whether a spool still has what an offset stands on; a query that is to read what is gone would wait for it for ever."""

from __future__ import annotations

from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.errors import StateError

from .names import GENERATIONS, Place, generation_name, manifest_name, manifests_of
from .offset import SpoolOffset

ADVICE = (
    "the checkpoint is older than what the spool keeps (minBatchesToRetain), or the spool was tidied up by hand or by a lifecycle rule. "
    "What it had is lost for this query; begin with new locations and flink.stream.initpos"
)


async def check_kept(store: ObjectStore, offset: SpoolOffset) -> None:
    """The generation of an offset and each lane's last step are never purged while the offset may be needed. Raises: StateError."""
    generations = await store.names(GENERATIONS)
    first = generation_name(max(1, offset.generation))
    if first not in generations and (generations or offset.generation):
        raise gone(first)
    there = set(await store.names(manifests_of(offset.generation))) if any(offset.lanes) else set()
    for lane, number in enumerate(offset.lanes):
        name = manifest_name(Place(offset.generation, lane, number))
        if number and name not in there:
            raise gone(name)


async def check_gap(store: ObjectStore, place: Place) -> None:
    """A step that a listing leaves out, though it has a later one: it was missed, or it is gone. Raises: StateError."""
    name = manifest_name(place)
    if await store.get(name) is None:
        raise gone(name)


def gone(name: str) -> StateError:
    """The error for it."""
    return StateError(f"the spool's {name} is gone: {ADVICE}")
