"""A claim: what one task read of its shards, said before the first row is handed over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import HashRange, Shard

RowId = tuple[str, int]
"""Sequence number and sub-sequence number."""


@dataclass(frozen=True, slots=True)
class ShardClaim:
    """One shard's part of a batch: from `start` to `end`, `records` rows, `first` and `last` of which are named.

    `began_ms`: when the read began; `tip_seen_ms`: when the first and the last read that stood at the tip were answered (executor's
    clock). The rest is what the next plan wants to know: at the tip, a record held above the bound and its watermark, evidence of
    silence (W3), children of an ended shard, MillisBehindLatest.
    """

    start: ShardState
    end: ShardState
    records: int = 0
    first: RowId | None = None
    last: RowId | None = None
    at_tip: bool = False
    past_event_time: bool = False
    head: int | None = None
    silent_ms: int = 0
    began_ms: int = 0
    tip_seen_ms: tuple[int, int] | None = None
    behind_ms: int | None = None
    children: tuple[Shard, ...] = ()

    @property
    def was_answered(self) -> bool:
        """Whether any read of the window was answered."""
        return self.records > 0 or self.behind_ms is not None

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "records": self.records,
            "first": self.first,
            "last": self.last,
            "atTip": self.at_tip,
            "pastEventTime": self.past_event_time,
            "head": self.head,
            "silentMs": self.silent_ms,
            "began": self.began_ms,
            "tipSeen": self.tip_seen_ms,
            "millisBehindLatest": self.behind_ms,
            "children": [shard_to_json(child) for child in self.children],
        }

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardClaim:
        """The inverse of `to_json`."""
        return cls(
            start=ShardState.from_json(entries["start"]),
            end=ShardState.from_json(entries["end"]),
            records=entries["records"],
            first=_row(entries["first"]),
            last=_row(entries["last"]),
            at_tip=entries["atTip"],
            past_event_time=entries["pastEventTime"],
            head=entries["head"],
            silent_ms=entries["silentMs"],
            began_ms=entries["began"],
            tip_seen_ms=_span(entries["tipSeen"]),
            behind_ms=entries["millisBehindLatest"],
            children=tuple(shard_from_json(child) for child in entries["children"]),
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What one group of shards gave, by `Shard.key`, and whether it was `subscribed`: read by fan-out."""

    shards: Mapping[str, ShardClaim]
    subscribed: bool = False

    def to_bytes(self) -> bytes:
        """As stored."""
        shards = {key: claim.to_json() for key, claim in self.shards.items()}
        return json.dumps({"shards": shards, "subscribed": self.subscribed}).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Claim:
        """The inverse of `to_bytes`. Raises: StateError when it does not fit."""
        try:
            plain = json.loads(stored)
            shards = {key: ShardClaim.from_json(entry) for key, entry in plain["shards"].items()}
            return cls(shards, plain["subscribed"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"a claim cannot be read: {stored[:200]!r}: {error}") from error

    @property
    def records(self) -> int:
        """Rows of the claim."""
        return sum(claim.records for claim in self.shards.values())


def _span(entry: list[int] | None) -> tuple[int, int] | None:
    return None if entry is None else (entry[0], entry[1])


def _row(entry: list[Any] | None) -> RowId | None:
    return None if entry is None else (str(entry[0]), int(entry[1]))


_EVERYTHING = HashRange()


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """Without empty entries; the hash range in hexadecimal, since JSON numbers end at 2**53 for many readers."""
    entries = {
        "stream": shard.stream,
        "id": shard.shard_id,
        "parents": list(shard.parents),
        "range": None if shard.hash_range == _EVERYTHING else f"{shard.hash_range.start:x}-{shard.hash_range.end:x}",
        "arn": shard.stream_arn,
    }
    return {name: value for name, value in entries.items() if value}


def shard_from_json(entries: Mapping[str, Any]) -> Shard:
    """The inverse of `shard_to_json`."""
    return Shard(
        stream=entries["stream"],
        shard_id=entries["id"],
        parents=tuple(entries.get("parents", ())),
        hash_range=_range(entries.get("range")),
        stream_arn=entries.get("arn"),
    )


def _range(text: str | None) -> HashRange:
    if text is None:
        return _EVERYTHING
    start, end = text.split("-")
    return HashRange(int(start, 16), int(end, 16))
