"""JobLeftovers: what killed processes of a job have staged, which no entry names and nobody will publish."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from recordpublisher.fetcher.checkpoints.assignment_kinds import PARTS
from recordpublisher.fetcher.checkpoints.state_entries import read_entries
from recordpublisher.fetcher.committing_sink import CommittingSink, Leftover, Staged, entries_of
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.documents.position_part import PositionPart
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_dead_letter_sink, build_sink, build_store
from ..host.manager import load_registry
from ..stores.by_location import missing_folder


class JobLeftovers:
    """Owns the connections of the job's sink and of its dead-letter sink, which are never opened, and of its state store.

    What a running job stages now is in no entry either: only its age tells it from what is left.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError. Sinks that stage nothing leave nothing."""
        registry = load_registry()
        properties.check()
        sink = build_sink(registry, properties)
        sinks = (sink, build_dead_letter_sink(registry, properties))
        self._sinks = [each for each in sinks if isinstance(each, CommittingSink)]
        self._stores: dict[Sink, list[ConditionalStore]] = {each: [] for each in sinks if each is not None}
        for each in self._sinks:
            if (entries := entries_of(each)) is not None:
                self._stores[each].append(entries)
        uri = properties.value(STATE_URI)
        if uri is not None and missing_folder(uri) is None and (state := build_store(registry, properties)):
            self._stores[sink].append(state)

    async def find(self, before: float) -> Sequence[tuple[CommittingSink, Sequence[Leftover]]]:
        """What was written before this time (epoch seconds), by sink. Raises: StateError, StoreUnavailableError."""
        return [(sink, await self._find(sink, before)) for sink in self._sinks]

    async def close(self) -> None:
        """Close what was opened."""
        for sink in self._stores:
            await sink.close()
        for store in chain(*self._stores.values()):
            await store.close()

    async def _find(self, sink: CommittingSink, before: float) -> list[Leftover]:
        listed = await sink.leftovers(())
        # What is committed or published meanwhile is in the entries, or gone.
        named = [staged for store in self._stores[sink] for staged in await _named_in(store, sink.target())]
        still = set(await sink.leftovers(named))
        return [left for left in listed if left.written < before and left in still]


async def _named_in(store: ConditionalStore, target: str) -> list[Staged]:
    """What the entries of subtasks and workers name that is in this target."""
    subtasks = [stored.document for stored in (await read_entries(store)).values()]
    parts = (await store.list(PARTS)).items()
    workers = [PositionPart.from_bytes(value.value, f"{name} in {store.place}") for name, value in parts]
    named = [(entry.target, entry.staged) for entry in subtasks] + [(part.target, part.staged) for part in workers]
    return [each for place, staged in named if place in ("", target) for each in staged]
