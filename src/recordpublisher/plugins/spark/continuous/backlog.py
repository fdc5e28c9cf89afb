"""Backlog: the steps of lanes that a query has not read yet, each fetched from the store once."""

from __future__ import annotations

from dataclasses import dataclass

from recordpublisher.plugins.stores.ports import ObjectStore

from .history import Step, read_steps
from .kept import check_gap
from .manifest import Kind, Manifest
from .names import Place, manifests_of, place_of
from .offset import SpoolOffset


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in one generation: by lane, the steps behind those that were read. `is_over`: every lane is sealed behind them."""

    generation: int
    read: tuple[int, ...]
    lanes: tuple[tuple[Step, ...], ...]
    is_over: bool

    @property
    def steps(self) -> list[Step]:
        """Of all lanes."""
        return [step for lane in self.lanes for step in lane]

    @property
    def rows(self) -> int:
        """Rows in them."""
        return sum(step.manifest.rows for step in self.steps)

    @property
    def names_parents(self) -> bool:
        """Whether a child's first rows are among them."""
        return any(rows.parents for step in self.steps for rows in step.manifest.shards.values())

    def reaches(self, end: SpoolOffset) -> bool:
        """Whether everything up to an offset is there."""
        if self.generation < end.generation:
            return self.is_over
        tops = (steps[-1].number if steps else read for steps, read in zip(self.lanes, self.read, strict=True))
        return tuple(tops) == end.lanes

    def until(self, end: SpoolOffset | None) -> Waiting:
        """Only what the offset covers, if one is given."""
        if end is None or self.generation < end.generation:
            return self
        lanes = end.lanes if self.generation == end.generation else tuple(0 for _ in self.lanes)
        kept = tuple(
            tuple(step for step in lane if step.number <= top) for lane, top in zip(self.lanes, lanes, strict=True)
        )
        return Waiting(self.generation, self.read, kept, self.is_over and kept == self.lanes)


class Backlog:
    """Owns the manifests that were fetched."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._fetched: dict[Place, Manifest] = {}

    async def waiting(self, generation: int, read: tuple[int, ...]) -> Waiting:
        """What waits behind the numbers that were read, now. Raises: StateError."""
        if generation == 0:
            return Waiting(0, (), (), is_over=True)
        named = [place_of(name) for name in await self._store.names(manifests_of(generation))]
        wanted = [place for place in named if place is not None and place.number >= max(1, read[place.lane])]
        self._fetched |= await read_steps(self._store, [place for place in wanted if place not in self._fetched])
        there = set(wanted)
        lanes = tuple(self._behind(Place(generation, lane, number), there) for lane, number in enumerate(read))
        await self._check_gaps(
            generation, [steps[-1].number if steps else top for steps, top in zip(lanes, read, strict=True)], there
        )
        ends = [
            steps[-1].manifest if steps else self._fetched.get(Place(generation, lane, read[lane]))
            for lane, steps in enumerate(lanes)
        ]
        is_over = all(end is not None and end.kind is Kind.SEALED for end in ends)
        return Waiting(generation, read, lanes, is_over)

    def forget(self, offset: SpoolOffset) -> None:
        """Drop what lies before the offset."""
        before = [
            place for place in self._fetched if offset.has_read(place) and place.number != _read_of(offset, place)
        ]
        for place in before:
            del self._fetched[place]

    async def _check_gaps(self, generation: int, tops: list[int], there: set[Place]) -> None:
        """Steps are put one after the other: where a later one is listed, the next one is there, or was removed."""
        later = {place.lane for place in there if place.number > tops[place.lane]}
        for lane in sorted(later):
            await check_gap(self._store, Place(generation, lane, tops[lane] + 1))

    def _behind(self, read: Place, there: set[Place]) -> tuple[Step, ...]:
        """In order and without a gap: a listing may miss what was put while it was made."""
        steps: list[Step] = []
        place = Place(read.generation, read.lane, read.number + 1)
        while place in there:
            steps.append(Step(place.number, self._fetched[place]))
            place = Place(place.generation, place.lane, place.number + 1)
        return tuple(steps)


def _read_of(offset: SpoolOffset, place: Place) -> int | None:
    return offset.lanes[place.lane] if place.generation == offset.generation else None
