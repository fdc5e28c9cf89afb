"""The story so far: what the producer and the two queries have told, and what the verdict needs of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .schedule import SHARDS

HASH_BITS = 128


@dataclass
class Story:
    """Owns the last word of everyone and the few facts that must be remembered."""

    total: int
    sent: list[int] = field(default_factory=lambda: [0] * SHARDS)
    reached: list[int] = field(default_factory=lambda: [0] * SHARDS)
    elapsed: float = 0.0
    all_sent: bool = False
    offsets: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen_idle: set[str] = field(default_factory=set)
    global_watermarks: list[tuple[str, int]] = field(default_factory=list)

    def hear_producer(self, told: dict[str, Any]) -> None:
        """Take a report of the producer."""
        self.sent, self.reached = told["sent"], told["reachedByQuarter"]
        self.elapsed, self.all_sent = told["elapsed"], told["done"]

    def hear_query(self, progress: dict[str, Any]) -> None:
        """Take a progress report of a query; its offset says where every shard stands."""
        name, source = progress["name"], progress["sources"][0]
        offset = source["endOffset"]
        if not isinstance(offset, dict):
            return
        self.offsets[name] = offset
        self.rows[name] = offset["records"] + source["numInputRows"]
        self.rates[name] = progress.get("processedRowsPerSecond") or 0.0
        self.seen_idle |= {key for key, entry in offset["shards"].items() if entry.get("idle")}
        if name == "flights":
            self._take_shards(offset["shards"])
        if offset.get("globalWatermark") is not None:
            self.global_watermarks.append((name, offset["globalWatermark"]))

    def _take_shards(self, entries: dict[str, dict[str, Any]]) -> None:
        """Remember where each shard stands; one that the offset does not name any more was read to its end."""
        for key, entry in self.shards.items():
            if key not in entries:
                self.shards[key] = {**entry, "at": {**entry["at"], "ended": True}}
        for key, entry in entries.items():
            self.shards[key] = {"idle": False, **entry}

    @property
    def has_arrived(self) -> bool:
        """Whether everything that was sent has come out of both queries."""
        return self.all_sent and len(self.rows) == 2 and all(count >= self.total for count in self.rows.values())

    @property
    def held_ms(self) -> int:
        """How long alignment held shards back, summed over the shards."""
        return sum(entry.get("heldMs", 0) for entry in self.shards.values())


def quarter_of(entry: dict[str, Any]) -> int:
    """Which of the four first shards a shard is, or comes from."""
    return int(entry["range"].split("-")[0], 16) * SHARDS >> HASH_BITS
