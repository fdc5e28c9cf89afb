"""The 128-bit ring of hash keys: which range a partition key falls into, and how ranges divide."""

import hashlib
from dataclasses import dataclass

from ..api_errors import invalid_argument

HASH_KEYS = 1 << 128


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hash keys from `start` to `end`, both included."""

    start: int
    end: int

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end


def uniform_ranges(count: int) -> list[HashRange]:
    """Divide the ring into `count` ranges of the same width, the last one taking the remainder."""
    width = HASH_KEYS // count
    starts = [i * width for i in range(count)]
    return [HashRange(start, end - 1) for start, end in zip(starts, [*starts[1:], HASH_KEYS], strict=True)]


def hash_of(partition_key: str) -> int:
    """Return the MD5 of the key as the service takes it: a big-endian 128-bit number."""
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def explicit_hash(text: str) -> int:
    """Return an explicit hash key as a number; raises InvalidArgumentException outside the ring."""
    if text.isdecimal() and int(text) < HASH_KEYS:
        return int(text)
    raise invalid_argument(
        f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was {text}"
    )
