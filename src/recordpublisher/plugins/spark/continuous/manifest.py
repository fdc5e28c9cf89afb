"""A manifest: one step of a lane. Rows and the position behind them become part of its history together, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.spark.source.read_claim import RowId
from recordpublisher.publishers.errors import StateError

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)


class Kind(StrEnum):
    """What a manifest says."""

    OPENED = "opened"
    """An attempt takes the lane over: whoever had it can append no more."""
    ROWS = "rows"
    """A fetcher came further, with rows or without."""
    SEALED = "sealed"
    """A newer generation ends the lane."""


@dataclass(frozen=True, slots=True)
class ShardRows:
    """One shard's rows in a file, in the shard's order. `parents`: only where these are the shard's first rows (S2)."""

    records: int
    first: RowId
    last: RowId
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """`state` is the fetcher's snapshot behind all rows of the lane so far (None: the lane has none of its own yet), `done` the shards
    that it had in this generation and does not keep any more. `file` has `rows` rows with `payload` bytes of data. `token` makes the
    manifest different from everybody else's. `watermark`: the global one, epoch ms; `made_ms`: the writer's clock.
    """

    kind: Kind
    token: str
    made_ms: int
    state: State | None = None
    done: tuple[str, ...] = ()
    file: str | None = None
    rows: int = 0
    payload: int = 0
    shards: Mapping[str, ShardRows] = field(default_factory=dict)
    watermark: int | None = None

    def to_bytes(self) -> bytes:
        """As stored."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}  # not asdict: it copies the whole state
        shards = {key: asdict(rows) for key, rows in self.shards.items()}
        return json.dumps({**plain, "shards": shards}).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Manifest:
        """The inverse of `to_bytes`. Raises: StateError when it does not fit."""
        try:
            plain = json.loads(stored)
            shards = {key: _shard_rows(entry) for key, entry in plain["shards"].items()}
            return cls(**{**plain, "kind": Kind(plain["kind"]), "done": tuple(plain["done"]), "shards": shards})
        except UNREADABLE as error:
            raise StateError(f"a manifest cannot be read: {stored[:200]!r}: {error}") from error


def _shard_rows(entry: Mapping[str, Any]) -> ShardRows:
    first, last = entry["first"], entry["last"]
    return ShardRows(entry["records"], (first[0], first[1]), (last[0], last[1]), tuple(entry["parents"]))
