"""OwnedKeys decides which sub-records of aggregates belong to a shard (S4)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..shards import HashRange, hash_key_from
from .kpl_format import SubRecords
from .loop_yielder import STEP

try:  # CPython's own: for short keys five times as fast as OpenSSL's, which is faster for whole messages
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5

T = TypeVar("T")


class OwnedKeys:
    """Owns the hash range of a shard. If an explicit hash key is not a number below 2^128, it is ignored and the partition key decides."""

    def __init__(self, own: HashRange) -> None:
        self._own = own
        self._start, self._end = own.start.to_bytes(16, "big"), own.end.to_bytes(16, "big")

    def owned(self, parts: SubRecords) -> list[bool] | None:
        """Return for each sub-record whether its hash key is in the range, or None if all are. One call hashes no key twice."""
        key_indexes, hash_key_indexes = parts.key_indexes, parts.hash_key_indexes
        by_key = _of_table(self._are_keys_in, parts.partition_keys, key_indexes)
        if hash_key_indexes is None:
            if not isinstance(by_key, dict) and all(by_key):
                return None
            owned = [by_key[index] for index in key_indexes]
        else:
            by_hash_key = _of_table(self._are_hash_keys_in, parts.explicit_hash_keys, hash_key_indexes)
            explicit = [None if at is None else by_hash_key[at] for at in hash_key_indexes]
            owned = [
                by_key[index] if own_key is None else own_key
                for index, own_key in zip(key_indexes, explicit, strict=True)
            ]
        return None if all(owned) else owned

    def _are_keys_in(self, keys: Sequence[str]) -> list[bool]:
        start, end = self._start, self._end
        return [start <= md5(key.encode()).digest() <= end for key in keys]  # noqa: S324 - as the service does

    def _are_hash_keys_in(self, keys: Sequence[str]) -> list[bool | None]:
        return [None if key is None else key in self._own for key in map(hash_key_from, keys)]


def _of_table(
    work: Callable[[Sequence[str]], list[T]], table: Sequence[str], indexes: Sequence[int | None]
) -> list[T] | dict[int, T]:
    """Return the results of `work` for a table's keys, by index.

    For a table that is longer than a step, only the keys that `indexes` use are worked on.
    """
    if len(table) <= STEP:
        return work(table)
    used = [index for index in set(indexes) if index is not None]
    return dict(zip(used, work([table[index] for index in used]), strict=True))
