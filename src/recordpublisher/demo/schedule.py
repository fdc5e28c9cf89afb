"""When the producer sends which flight, how far one shard lags, and which shard a flight goes to."""

import hashlib
import math
from dataclasses import dataclass

from recordpublisher.publishers.shards import MAX_HASH_KEY

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ProductionSchedule:
    """A year of flights in `seconds`, unevenly: the pace swings by half around its mean.

    The lagging shard falls behind by up to `largest_lag_ms` of event time in the middle of the run and has caught up at the end.
    """

    first: int
    last: int
    seconds: float
    largest_lag_ms: int = 60 * DAY_MS

    def event_time_at(self, elapsed: float) -> int:
        """The event time (epoch ms) up to which flights have been sent after `elapsed` seconds."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        swing = math.sin(6 * math.pi * part) / (12 * math.pi)
        return self.first + math.ceil((part + swing) * (self.last - self.first))

    def lagging_event_time_at(self, elapsed: float) -> int:
        """The same for the lagging shard."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        lag = self.largest_lag_ms * math.sin(math.pi * part) ** 2
        return self.event_time_at(elapsed) - math.floor(lag)

    @property
    def half_way(self) -> int:
        """The event time at which one shard falls silent."""
        return (self.first + self.last) // 2

    def is_time_to_split(self, elapsed: float) -> bool:
        """Whether the reshard is due."""
        return elapsed >= 0.4 * self.seconds


SHARDS = 4
SPLIT, LAGGING, SILENT, TAKES_OVER = 0, 1, 2, 3
"""Which of the four shards, by the order of their hash ranges, has which role."""


@dataclass(frozen=True, slots=True)
class Route:
    """The quarter of the hash range that a flight lands in, and the explicit hash key that sends it there if its own does not."""

    quarter: int
    explicit_hash_key: str | None = None


def route(partition_key: str, is_second_half: bool) -> Route:
    """By MD5 as the service does it; in the second half the silent shard's flights go elsewhere by explicit hash key."""
    hash_key = int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")
    quarter = hash_key * SHARDS >> 128
    if quarter == SILENT and is_second_half:
        return Route(TAKES_OVER, str(hash_key - (MAX_HASH_KEY + 1) // SHARDS * (SILENT - TAKES_OVER)))
    return Route(quarter)


def split_hash_key() -> str:
    """The middle of the shard that is split."""
    quarter = (MAX_HASH_KEY + 1) // SHARDS
    return str(SPLIT * quarter + quarter // 2)
