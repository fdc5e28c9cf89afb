"""Decides when the producer sends which flight, how far one shard lags, and to which shard a flight is sent."""

import hashlib
import math
from dataclasses import dataclass

from recordpublisher.publishers.shards import MAX_HASH_KEY

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ProductionSchedule:
    """Sends a year of flights in `seconds`, unevenly: the pace varies by half around its mean.

    The lagging shard falls behind by up to `largest_lag_ms` of event time in the middle of the run, and has caught up at the end.
    """

    first: int
    last: int
    seconds: float
    largest_lag_ms: int = 60 * DAY_MS

    def event_time_at(self, elapsed: float) -> int:
        """Return the event time (epoch ms) up to which flights have been sent after `elapsed` seconds."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        swing = math.sin(6 * math.pi * part) / (12 * math.pi)
        return self.first + math.ceil((part + swing) * (self.last - self.first))

    def lagging_event_time_at(self, elapsed: float) -> int:
        """Return the same for the lagging shard."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        lag = self.largest_lag_ms * math.sin(math.pi * part) ** 2
        return self.event_time_at(elapsed) - math.floor(lag)

    @property
    def half_way(self) -> int:
        """The event time at which one shard falls silent."""
        return (self.first + self.last) // 2

    def is_time_to_split(self, elapsed: float) -> bool:
        """Return whether the reshard is due."""
        return elapsed >= 0.4 * self.seconds


SHARDS = 4
SPLIT, LAGGING, SILENT, TAKES_OVER = 0, 1, 2, 3
"""The role of each of the four shards, in the order of their hash ranges."""


@dataclass(frozen=True, slots=True)
class Route:
    """The quarter of the hash range to which a flight is sent, and an explicit hash key if its own key does not lead there."""

    quarter: int
    explicit_hash_key: str | None = None


def route(partition_key: str, is_second_half: bool) -> Route:
    """Return the route of a flight, by MD5 as the service does it.

    In the second half an explicit hash key sends the silent shard's flights to another shard.
    """
    hash_key = int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")
    quarter = hash_key * SHARDS >> 128
    if quarter == SILENT and is_second_half:
        return Route(TAKES_OVER, str(hash_key - (MAX_HASH_KEY + 1) // SHARDS * (SILENT - TAKES_OVER)))
    return Route(quarter)


def split_hash_key() -> str:
    """Return the middle of the hash range of the shard that is split."""
    quarter = (MAX_HASH_KEY + 1) // SHARDS
    return str(SPLIT * quarter + quarter // 2)
