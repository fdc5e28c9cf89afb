"""The offset of a query that reads a spool: up to which manifest of each lane of a generation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recordpublisher.publishers.errors import StateError

from .manifest import UNREADABLE
from .names import Place

VERSION = 1


@dataclass(frozen=True, slots=True)
class SpoolOffset:
    """`lanes` has the number of the last manifest that was read of each lane; generation 0 has none and comes before all.

    `spool` and `query` tell a spool from one that took its place, and a query from another over the same spool. `records`: rows so far.
    `tasks`: over how many tasks the batch's lanes are dealt, so that a replay deals them the same.
    """

    spool: str
    query: str
    batch: int = 0
    generation: int = 0
    lanes: tuple[int, ...] = ()
    records: int = 0
    tasks: int = 1

    def has_read(self, place: Place) -> bool:
        """Whether the manifest of that place was read, or skipped with its generation."""
        if place.generation != self.generation:
            return place.generation < self.generation
        return place.number <= self.lanes[place.lane]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        return {"spoolVersion": VERSION, **asdict(self), "lanes": list(self.lanes)}

    def to_bytes(self) -> bytes:
        """As the spool keeps it."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> SpoolOffset:
        """The inverse of `to_bytes`. Raises: StateError."""
        return cls.from_json(json.loads(stored))

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SpoolOffset:
        """The inverse of `to_json`. Raises: StateError for the offset of another mode or a newer release."""
        if "spoolVersion" not in plain:
            raise StateError(
                "the checkpoint is of a query in mode BATCH, and a query keeps its mode: begin with a new checkpointLocation "
                "and a new metadataLocation"
            )
        if plain["spoolVersion"] > VERSION:
            raise StateError(f"the offset has version {plain['spoolVersion']}, this release reads {VERSION}: upgrade")
        try:
            given = {key: value for key, value in plain.items() if key != "spoolVersion"}
            return cls(**{**given, "lanes": tuple(given["lanes"])})
        except UNREADABLE as error:
            raise StateError(f"an offset cannot be read: {str(plain)[:200]}: {error}") from error
