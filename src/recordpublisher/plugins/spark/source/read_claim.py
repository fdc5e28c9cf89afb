"""ReadClaim: what one task has read of its shards, stored once, before the task returns its first row.

The first claim of a task wins. Every other attempt of that task reads the claimed ranges again and returns the same rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import HashRange, Shard

VERSION = 2
"""Version 2 has other field names than 1, which has no version field and is refused."""

RowId = tuple[str, int]
"""Sequence number and sub-sequence number."""


@dataclass(frozen=True, slots=True)
class ShardReadRange:
    """What a task read of one shard: `records` rows between the states `start` and `end`, the first and last of them by `first` and `last`.

    `bytes` is their payload before de-aggregation. The rest is for the plan of the next batch:

    - `began_ms`: when the read began, by the executor's clock.
    - `at_tip`, `tip_seen_ms`: whether the last response was at the tip; when the first and the last such response arrived.
    - `past_event_time`, `next_watermark`: whether a record waits above the emit limit, and its watermark.
    - `silent_ms`: observed silence (W3).
    - `behind_ms`: MillisBehindLatest of the last response.
    - `children`: the children that an ended shard named.
    - `failure`: the error of the last call, if the read ended while it was tried again.
    """

    start: ShardState
    end: ShardState
    records: int = 0
    first: RowId | None = None
    last: RowId | None = None
    at_tip: bool = False
    past_event_time: bool = False
    next_watermark: int | None = None
    silent_ms: int = 0
    began_ms: int = 0
    tip_seen_ms: tuple[int, int] | None = None
    behind_ms: int | None = None
    children: tuple[Shard, ...] = ()
    failure: str | None = None
    bytes: int = 0

    @property
    def had_response(self) -> bool:
        """Whether the service responded to any request of this read."""
        return self.records > 0 or self.behind_ms is not None

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "records": self.records,
            "bytes": self.bytes,
            "first": self.first,
            "last": self.last,
            "atTip": self.at_tip,
            "pastEventTime": self.past_event_time,
            "nextWatermark": self.next_watermark,
            "silentMs": self.silent_ms,
            "beganMs": self.began_ms,
            "tipSeenMs": self.tip_seen_ms,
            "millisBehindLatest": self.behind_ms,
            "children": [shard_to_json(child) for child in self.children],
            "failure": self.failure,
        }

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardReadRange:
        """The inverse of `to_json`."""
        return cls(
            start=ShardState.from_json(entries["start"]),
            end=ShardState.from_json(entries["end"]),
            records=entries["records"],
            first=_row_id(entries["first"]),
            last=_row_id(entries["last"]),
            at_tip=entries["atTip"],
            past_event_time=entries["pastEventTime"],
            next_watermark=entries["nextWatermark"],
            silent_ms=entries["silentMs"],
            began_ms=entries["beganMs"],
            tip_seen_ms=_first_and_last(entries["tipSeenMs"]),
            behind_ms=entries["millisBehindLatest"],
            children=tuple(shard_from_json(child) for child in entries["children"]),
            failure=entries.get("failure"),
            bytes=entries.get("bytes", 0),
        )


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """The read ranges of one task, by `Shard.key`, and whether it was `subscribed`: read by fan-out."""

    shards: Mapping[str, ShardReadRange]
    subscribed: bool = False

    def to_bytes(self) -> bytes:
        """The stored form: compressed JSON, a fifth of its size for 3 ms of CPU for a thousand shards (measured)."""
        shards = {key: read.to_json() for key, read in self.shards.items()}
        return zlib.compress(json.dumps({"v": VERSION, "shards": shards, "subscribed": self.subscribed}).encode(), 1)

    @classmethod
    def from_bytes(cls, stored: bytes) -> ReadClaim:
        """The inverse of `to_bytes`; JSON that is not compressed is read too. Raises: StateError for other content."""
        try:
            plain = json.loads(stored if stored.startswith(b"{") else zlib.decompress(stored))
            _check_version(plain.get("v", 1))
            shards = {key: ShardReadRange.from_json(entry) for key, entry in plain["shards"].items()}
            return cls(shards, plain["subscribed"])
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
            raise StateError(f"a claim cannot be read: {stored[:200]!r}: {error}") from error

    @property
    def records(self) -> int:
        """Rows of all shards."""
        return sum(read.records for read in self.shards.values())


def _check_version(version: object) -> None:
    if version != VERSION:
        raise StateError(
            f"metadataLocation has a claim of version {version}, and this release reads version {VERSION} only: "
            "use the release that wrote it, or start with a new checkpointLocation and a new metadataLocation"
        )


def _first_and_last(entry: list[int] | None) -> tuple[int, int] | None:
    return None if entry is None else (entry[0], entry[1])


def _row_id(entry: list[Any] | None) -> RowId | None:
    return None if entry is None else (str(entry[0]), int(entry[1]))


_ALL_HASH_KEYS = HashRange()


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """A plain dict without empty entries. The hash range is hexadecimal text: many JSON readers lose digits of numbers above 2**53."""
    entries = {
        "stream": shard.stream,
        "id": shard.shard_id,
        "parents": list(shard.parents),
        "range": None if shard.hash_range == _ALL_HASH_KEYS else f"{shard.hash_range.start:x}-{shard.hash_range.end:x}",
        "arn": shard.stream_arn,
    }
    return {name: value for name, value in entries.items() if value}


def shard_from_json(entries: Mapping[str, Any]) -> Shard:
    """The inverse of `shard_to_json`."""
    return Shard(
        stream=entries["stream"],
        shard_id=entries["id"],
        parents=tuple(entries.get("parents", ())),
        hash_range=_range_from_text(entries.get("range")),
        stream_arn=entries.get("arn"),
    )


def _range_from_text(text: str | None) -> HashRange:
    if text is None:
        return _ALL_HASH_KEYS
    start, end = text.split("-")
    return HashRange(int(start, 16), int(end, 16))
