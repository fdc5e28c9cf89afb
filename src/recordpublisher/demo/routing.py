"""Where each flight goes: by its key, except that one shard falls silent half-way and one lags."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from recordpublisher.publishers.shards import MAX_HASH_KEY

SHARDS = 4
SPLIT, LAGGING, SILENT, TAKES_OVER = 0, 1, 2, 3
"""Which of the four shards, by the order of their hash ranges, plays which part."""


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
