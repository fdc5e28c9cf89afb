"""A generation: one start of the fetchers. It says how many lanes there are and where they begin."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.errors import StateError

from .manifest import UNREADABLE
from .names import GENERATIONS, generation_name


@dataclass(frozen=True, slots=True)
class Generation:
    """`state` is a snapshot: where the generation before ended, or where the job starts. `token` is that of the start.

    `opened_ms`: when, by the clock of the driver that opened it, epoch ms; 0: long ago.
    """

    number: int
    lanes: int
    token: str
    state: State
    opened_ms: int = 0

    def to_bytes(self) -> bytes:
        """As stored."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)}).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Generation:
        """The inverse of `to_bytes`. Raises: StateError."""
        try:
            return cls(**json.loads(stored))
        except UNREADABLE as error:
            raise StateError(f"a generation of the spool cannot be read: {stored[:200]!r}: {error}") from error


async def generation_of(store: ObjectStore, number: int) -> Generation | None:
    """A generation, if it was opened and is not forgotten."""
    stored = await store.get(generation_name(number))
    return None if stored is None else Generation.from_bytes(stored)


async def newest_generation(store: ObjectStore) -> Generation | None:
    """The last generation that was opened."""
    names = await store.names(GENERATIONS)
    return await generation_of(store, int(names[-1].removeprefix(GENERATIONS))) if names else None


async def put_generation(store: ObjectStore, generation: Generation) -> bool:
    """Open it, unless somebody has opened another of that number."""
    content = generation.to_bytes()
    return await store.put_if_absent(generation_name(generation.number), content) == content
