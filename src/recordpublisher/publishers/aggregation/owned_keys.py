"""OwnedKeys: which sub-records of an aggregate belong to a shard (S4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ..shards import HashRange, hash_key_from
from .kpl_format import Aggregate, SubRecords
from .loop_yielder import STEP, in_steps

try:  # CPython's own: for short keys five times as fast as OpenSSL's (which is faster for whole messages)
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5


class OwnedKeys(NamedTuple):
    """Which keys of an aggregate's tables lie in a hash range. An explicit hash key that is no number below 2^128 is None: it is ignored,
    the partition key decides."""

    by_key: list[bool]
    by_hash_key: list[bool | None]

    @classmethod
    async def of(cls, aggregate: Aggregate, own: HashRange) -> OwnedKeys | None:
        """Hash every key of the tables once. None: all of them lie in the range."""
        keys, hash_keys = aggregate.partition_keys, aggregate.explicit_hash_keys
        in_range = partial(_are_keys_in, own.start.to_bytes(16, "big"), own.end.to_bytes(16, "big"))
        by_key = in_range(keys) if len(keys) <= STEP else await in_steps(in_range, keys)
        by_hash_key: list[bool | None] = []
        if hash_keys:
            by_hash_key = await in_steps(partial(_are_hash_keys_in, own), hash_keys)
        return None if all(by_key) and False not in by_hash_key else cls(by_key, by_hash_key)

    def owned(self, parts: SubRecords) -> list[bool] | None:
        """For each of the sub-records, whether its hash key is in the range; None when all are."""
        owned = [self.by_key[index] for index in parts.key_indexes]
        if parts.hash_key_indexes is not None:
            explicit = [None if at is None else self.by_hash_key[at] for at in parts.hash_key_indexes]
            owned = [by_key if own_key is None else own_key for by_key, own_key in zip(owned, explicit, strict=True)]
        return None if all(owned) else owned


def _are_keys_in(start: bytes, end: bytes, keys: Sequence[str]) -> list[bool]:
    return [start <= md5(key.encode()).digest() <= end for key in keys]  # noqa: S324 - as the service does


def _are_hash_keys_in(own: HashRange, keys: Sequence[str]) -> list[bool | None]:
    return [None if key is None else key in own for key in map(hash_key_from, keys)]
