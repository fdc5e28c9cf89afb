"""Lane: one subtask's place in a generation, and the only way rows get into the spool."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError

from .generation import Generation
from .history import add_at_end, add_step, last_steps, state_of
from .manifest import Kind, Manifest
from .names import Place, file_name
from .room import read_so_far
from .rows import SpooledRows

YOUNG_MS = 120_000
"""For so long after a generation was opened its lanes begin without looking at each other: that costs the square of their number, and
nobody can have come so far that it mattered to the others. The clocks of two machines are compared, seconds apart at most."""
LOOK_SECONDS = 10.0
"""How often a lane asks whether the query is ahead of it: then what shut it out was read, and forgotten."""


class Lane:
    """Owns the end of the lane's history, from `take_over` until somebody else takes it over or seals it."""

    def __init__(self, store: ObjectStore, generation: Generation, number: int, clock: Clock) -> None:
        self.store = store
        self.generation = generation
        self.number = number
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._length = 0
        self._known: frozenset[str] = frozenset()
        self._done: frozenset[str] = frozenset()

    async def take_over(self) -> State:
        """Shut out every earlier attempt; answers where the generation stands, all lanes together.

        In a young generation the other lanes stand, as far as this one is concerned, where it began. What they have read since are not
        this lane's shards, and which of them have ended it hears from the tracker.

        Raises: FencedError when a newer start has ended the lane.
        """
        token = uuid.uuid4().hex
        step = await add_at_end(
            self.store, self.generation.number, self.number, Kind.OPENED, token, self._clock.now_ms()
        )
        if step.manifest.kind is Kind.SEALED:
            raise self._fenced(step.manifest)
        self._length = step.number
        self._known = frozenset((step.manifest.state or {"shards": {}})["shards"])
        self._done = frozenset(step.manifest.done)
        if self._clock.now_ms() - self.generation.opened_ms < YOUNG_MS:
            return state_of(self.generation, [step, *[None] * (self.generation.lanes - 1)])
        return state_of(self.generation, await last_steps(self.store, self.generation))

    async def append(self, rows: SpooledRows | None, state: State, watermark: int | None) -> Place:
        """Rows and the position behind them, as one step; answers where they stand. Raises: FencedError, StateError.

        After an error it is not known whether they are part of the history: the lane must be taken over anew.
        """
        if not self._length:
            raise ImpossibleStateError("a lane is taken over before anything is appended")
        place = Place(self.generation.number, self.number, self._length + 1)
        await self._look(place)
        token = uuid.uuid4().hex
        file = None
        if rows is not None:
            file = file_name(place, token)
            await self.store.put(file, rows.content)
        known, done = self._seen(state["shards"])
        manifest = Manifest(
            kind=Kind.ROWS,
            token=token,
            made_ms=self._clock.now_ms(),
            state=state,
            done=tuple(sorted(done)),
            file=file,
            rows=0 if rows is None else rows.count,
            payload=0 if rows is None else rows.payload,
            shards={} if rows is None else rows.shards,
            watermark=watermark,
        )
        stored = await add_step(self.store, place, manifest)
        if stored.token != token:
            raise self._fenced(stored)
        self._length, self._known, self._done = place.number, known, done
        return place

    async def _look(self, mine: Place) -> None:
        """Whoever slept for so long that the steps behind its own were purged finds its place free, and nobody would read it."""
        if self._clock.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = self._clock.monotonic()
        read = await read_so_far(self.store)
        if read is not None and read.has_read(mine):
            raise self._lost("another attempt or a newer start of the fetchers")

    def _seen(self, shards: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        known = self._known | frozenset(shards)
        return known, (self._done | known) - frozenset(shards)

    def _fenced(self, by: Manifest) -> FencedError:
        return self._lost("a newer start of the fetchers" if by.kind is Kind.SEALED else "another attempt")

    def _lost(self, to: str) -> FencedError:
        return FencedError(
            f"{to} owns lane {self.number} of the spool's generation {self.generation.number}; this one must stop"
        )
