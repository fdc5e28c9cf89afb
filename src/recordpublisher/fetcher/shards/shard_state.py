"""ShardState: how far one shard was emitted; immutable, and stored as readable JSON (S5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition

T = TypeVar("T")
MAX_DIGITS = 256
"""Of a sequence number that is stored; those of Kinesis have 56."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """How far a shard was emitted.

    - `position`: the last emitted record; None: the shard begins at `start`.
    - `continuation`: the last fan-out ContinuationSequenceNumber at or behind the position; polling never uses it (F6).
    - `watermark`: the shard's watermark after the last emitted record (epoch ms); `arrival_ms`: that record's arrival.
    - `tip_ms`: when a read last stood at the shard's tip.
    - `ended`: the last record was emitted (S2). `waiting`: the shard has not started, since its parents are not finished.
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

    def starting_position(self, use_continuation: bool) -> StartingPosition:
        """Where a publisher resumes: fan-out after the continuation, others after the last emitted record."""
        if use_continuation and self.continuation is not None and not self._is_inside_aggregate:
            return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, self.continuation)
        return self.start if self.position is None else StartingPosition.after(self.position)

    @property
    def _is_inside_aggregate(self) -> bool:
        return self.position is not None and self.position.is_inside_aggregate

    def to_json(self) -> dict[str, Any]:
        """A plain dict, without None and False."""
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
        }
        return {name: value for name, value in entries.items() if value is not None}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardState:
        """The inverse of `to_json`. Raises: StateError when it does not fit."""
        try:
            return cls(
                start=start_from_json(entries["start"]),
                position=_position(entries),
                continuation=_typed(entries, "continuation", str),
                watermark=_typed(entries, "watermark", int),
                ended=_typed(entries, "ended", bool) or False,
                arrival_ms=_typed(entries, "arrivalMs", int),
                tip_ms=_typed(entries, "tipMs", int),
                parents=_parents(entries),
                waiting=_typed(entries, "waitingForParents", bool) or False,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"a shard's state cannot be read: {entries!r}: {error}") from error


def _position(entries: Mapping[str, Any]) -> SequenceNumber | None:
    sequence, part = entries.get("position"), _typed(entries, "subSequenceNumber", int)
    if sequence is None:
        return None
    if len(str(sequence)) > MAX_DIGITS or (part is not None and part < 0):
        raise ValueError("the position is no sequence number, or has a negative sub-sequence number")
    return SequenceNumber(str(sequence), WHOLE_RECORD if part is None else part)


def _parents(entries: Mapping[str, Any]) -> tuple[str, ...]:
    parents = entries.get("parents") or ()
    if not isinstance(parents, (list, tuple)):
        raise TypeError(f"parents is {parents!r}, which is no list")
    return tuple(parents)


def _typed(entries: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """The entry, None without one. Raises: TypeError for one of another type; a truth value is no number."""
    value = entries.get(name)
    if value is not None and type(value) is not kind:
        raise TypeError(f"{name} is {value!r}, which is no {kind.__name__}")
    return value


def start_to_json(start: StartingPosition) -> str | dict[str, Any]:
    """A starting position as JSON."""
    if start.timestamp_ms is not None:
        return {"type": start.type.value, "timestamp": start.timestamp_ms}
    if start.sequence_number is not None:
        return {"type": start.type.value, "sequence": start.sequence_number}
    return start.type.value


def start_from_json(entry: str | Mapping[str, Any]) -> StartingPosition:
    """The inverse of `start_to_json`."""
    if isinstance(entry, str):
        return StartingPosition(PositionType(entry))
    return StartingPosition(PositionType(entry["type"]), entry.get("sequence"), entry.get("timestamp"))
