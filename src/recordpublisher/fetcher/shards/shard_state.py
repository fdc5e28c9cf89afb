"""How far one shard was emitted: an immutable value, which is stored as readable JSON (S5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition

from ..conditional_store import Count, Millis, SequenceText, document_as


@dataclass(frozen=True, slots=True)
class ShardState:
    """How far a shard was emitted.

    - `position`: the last emitted record, or None if the shard begins at `start`.
    - `continuation`: the last ContinuationSequenceNumber of enhanced fan-out at or after the position. Polling never uses it.
    - `watermark`: the shard's watermark after the last emitted record (epoch ms).
    - `arrival_ms`: when that record arrived (epoch ms).
    - `tip_ms`: when a read last was at the shard's tip (epoch ms).
    - `seen_ms`: a time until which no record of the shard can have been lost (epoch ms). For a child it is the time until which its parents
      were open. For a shard that began at LATEST it is the time that replaced LATEST. For an ended shard it is a time until which the
      shard certainly was open.
    - `ended`: whether the last record was emitted.
    - `waiting`: whether the shard has not started, because its parents have not ended.
    - `parents`: the ids of the parent shards.
    """

    start: StartingPosition
    position: SequenceNumber | None = None
    continuation: str | None = None
    watermark: int | None = None
    ended: bool = False
    arrival_ms: int | None = None
    tip_ms: int | None = None
    parents: tuple[str, ...] = ()
    waiting: bool = False
    seen_ms: int | None = None

    def starting_position(self, use_continuation: bool) -> StartingPosition:
        """Return where a publisher resumes. `use_continuation`: whether it can resume after `continuation` (only enhanced fan-out can)."""
        is_inside_aggregate = self.position is not None and self.position.is_inside_aggregate
        if use_continuation and self.continuation is not None and not is_inside_aggregate:
            return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, self.continuation)
        return self.start if self.position is None else StartingPosition.after(self.position)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without fields that are None or False."""
        entries = {
            "start": start_to_json(self.start),
            "position": None if self.position is None else self.position.sequence,
            "subSequenceNumber": self.position.sub_sequence
            if self.position is not None and self.position.is_inside_aggregate
            else None,
            "continuation": self.continuation,
            "watermark": self.watermark,
            "ended": self.ended or None,
            "arrivalMs": self.arrival_ms,
            "tipMs": self.tip_ms,
            "parents": list(self.parents) or None,
            "waitingForParents": self.waiting or None,
            "seenMs": self.seen_ms,
        }
        return {name: value for name, value in entries.items() if value is not None}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardState:
        """Return the state that `to_json` has written. Raises: StateError if the entries do not fit."""
        return document_as(entries, StoredState, "a shard's state").state


class StoredStart(msgspec.Struct, omit_defaults=True):
    """The start of a shard, as it is stored."""

    type: PositionType
    sequence: SequenceText | None = None
    timestamp: Millis | None = None

    def __post_init__(self) -> None:
        needed = self.timestamp if self.type is PositionType.AT_TIMESTAMP else self.sequence
        if needed is None and self.type not in (PositionType.TRIM_HORIZON, PositionType.LATEST):
            raise ValueError(f"{self.type.value} needs a time or a sequence number")


StoredStarts = Literal["TRIM_HORIZON", "LATEST"] | StoredStart


class StoredState(msgspec.Struct, rename="camel"):
    """The fields of a shard's state as they are stored, with checks of their types and ranges. `ShardState` is used everywhere else."""

    start: StoredStarts
    position: SequenceText | None = None
    sub_sequence_number: Count | None = None
    continuation: SequenceText | None = None
    watermark: Millis | None = None
    ended: bool = False
    arrival_ms: Millis | None = None
    tip_ms: Millis | None = None
    parents: tuple[str, ...] = ()
    waiting_for_parents: bool = False
    seen_ms: Millis | None = None

    @property
    def state(self) -> ShardState:
        """The `ShardState` with these fields."""
        part = WHOLE_RECORD if self.sub_sequence_number is None else self.sub_sequence_number
        position = None if self.position is None else SequenceNumber(self.position, part)
        return ShardState(
            start_of(self.start),
            position,
            self.continuation,
            self.watermark,
            self.ended,
            self.arrival_ms,
            self.tip_ms,
            self.parents,
            self.waiting_for_parents,
            self.seen_ms,
        )


def start_to_json(start: StartingPosition) -> str | dict[str, Any]:
    """Return a starting position as JSON: a text, or an object if the position has a time or a sequence number."""
    entry: str | dict[str, Any] = msgspec.to_builtins(stored_start(start))
    return entry


def start_from_json(entry: str | Mapping[str, Any]) -> StartingPosition:
    """Return the starting position that `start_to_json` has written. Raises: StateError if the entry is malformed."""
    return start_of(document_as(entry, StoredStarts, "a starting position"))  # type: ignore[arg-type]


def stored_start(start: StartingPosition) -> StoredStarts:
    """Return the form in which a starting position is stored."""
    if start.type is PositionType.TRIM_HORIZON:
        return "TRIM_HORIZON"
    if start.type is PositionType.LATEST:
        return "LATEST"
    return StoredStart(start.type, start.sequence_number, start.timestamp_ms)


def start_of(stored: StoredStarts) -> StartingPosition:
    """Return the starting position that is stored in this form."""
    if isinstance(stored, str):
        return StartingPosition(PositionType(stored))
    return StartingPosition(stored.type, stored.sequence, stored.timestamp)
