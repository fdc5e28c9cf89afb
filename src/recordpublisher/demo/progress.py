"""DemoProgress: what the producer and the two queries have reported so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .schedule import SHARDS

HASH_BITS = 128


@dataclass
class DemoProgress:
    """The latest report of each process, and the facts that the checks at the end need."""

    total: int
    sent: list[int] = field(default_factory=lambda: [0] * SHARDS)
    sent_up_to: list[int] = field(default_factory=lambda: [0] * SHARDS)
    elapsed: float = 0.0
    all_sent: bool = False
    offsets: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen_idle: set[str] = field(default_factory=set)
    global_watermarks: list[tuple[str, int]] = field(default_factory=list)

    def add_producer_report(self, report: dict[str, Any]) -> None:
        """Add a report of the producer."""
        self.sent, self.sent_up_to = report["sent"], report["sentUpToByQuarter"]
        self.elapsed, self.all_sent = report["elapsed"], report["done"]

    def add_query_progress(self, progress: dict[str, Any]) -> None:
        """Add a progress report of a query; its offset holds the state of every shard."""
        name, source = progress["name"], progress["sources"][0]
        offset = source["endOffset"]
        if not isinstance(offset, dict):
            return
        self.offsets[name] = offset
        rows = offset["records"] + source["numInputRows"]
        # a query that waits reports its last offset again, with no rows
        self.rows[name] = max(rows, self.rows.get(name, 0))
        self.rates[name] = progress.get("processedRowsPerSecond") or 0.0
        self.seen_idle |= {key for key, entry in offset["shards"].items() if entry.get("idle")}
        if name == "flights":
            self._update_shards(offset["shards"])
        if offset.get("globalWatermark") is not None:
            self.global_watermarks.append((name, offset["globalWatermark"]))

    def _update_shards(self, entries: dict[str, dict[str, Any]]) -> None:
        """Keep the state of each shard; one that the offset no longer contains was read to its end."""
        for key, entry in self.shards.items():
            if key not in entries:
                self.shards[key] = {**entry, "state": {**entry["state"], "ended": True}}
        for key, entry in entries.items():
            self.shards[key] = {"idle": False, **entry}

    @property
    def is_complete(self) -> bool:
        """Whether both queries have written everything that was sent."""
        return self.all_sent and len(self.rows) == 2 and all(count >= self.total for count in self.rows.values())

    @property
    def held_ms(self) -> int:
        """How long alignment held shards back, summed over the shards."""
        return sum(entry.get("held", {}).get("ms", 0) for entry in self.shards.values())


def quarter_of(entry: dict[str, Any]) -> int:
    """Which of the four first shards this shard is, or descends from."""
    return int(entry["range"].split("-")[0], 16) * SHARDS >> HASH_BITS
