"""Positions in a shard (SequenceNumber and StartingPosition), and the rule for the next position."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

WHOLE_RECORD = -1
LONGEST_SEQUENCE = 256
"""The most characters of a sequence number that can be stored as a position. Kinesis has 56 digits, other sources may have more."""


@dataclass(frozen=True, slots=True)
class SequenceNumber:
    """A position in a shard: every record up to and including it was processed.

    - `sequence`: the service's decimal number as text. Sources other than Kinesis may use any text of up to 256 characters.
    - `sub_sequence`: -1 if the whole record was processed. Otherwise the last processed sub-record of a KPL aggregate.
    - `continuation`: whether this is the ContinuationSequenceNumber of an event of enhanced fan-out. Only SubscribeToShard accepts it, so
      polling never uses it.
    """

    sequence: str
    sub_sequence: int = WHOLE_RECORD
    continuation: bool = False

    @property
    def is_inside_aggregate(self) -> bool:
        """Whether more sub-records of the same record follow."""
        return self.sub_sequence != WHOLE_RECORD

    def __str__(self) -> str:
        return f"{self.sequence}-{self.sub_sequence}" if self.is_inside_aggregate else self.sequence


class PositionType(StrEnum):
    """The service's names for the positions at which a read may start."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


@dataclass(frozen=True, slots=True)
class StartingPosition:
    """Where a read starts: `type`, with `sequence_number` or `timestamp_ms` (epoch ms) if the type needs one.

    - `skip_through`: the last processed sub-record, for a start inside a KPL aggregate. The reader drops the sub-records up to and
      including this one.
    - `ago_ms`: the age (ms) of a start at an age, such as 2 hours ago; otherwise 0. The type of such a start is LATEST, until `pinned_at`
      replaces it by a time.
    """

    type: PositionType
    sequence_number: str | None = None
    timestamp_ms: int | None = None
    skip_through: SequenceNumber | None = None
    ago_ms: int = 0

    @classmethod
    def trim_horizon(cls) -> StartingPosition:
        """Return the start at the oldest record that the shard still has."""
        return cls(PositionType.TRIM_HORIZON)

    @classmethod
    def latest(cls) -> StartingPosition:
        """Return the start at the records that are written from now on. At its first start a job replaces this by a time."""
        return cls(PositionType.LATEST)

    @classmethod
    def at_timestamp(cls, timestamp_ms: int) -> Self:
        """Return the start at the first record that arrived at or after `timestamp_ms` (epoch ms)."""
        return cls(PositionType.AT_TIMESTAMP, timestamp_ms=timestamp_ms)

    def pinned_at(self, service_time_ms: int) -> Self:
        """Return a start at a time instead of LATEST, or instead of a start at an age. Return any other start unchanged.

        `service_time_ms`: the time of the service's clock (epoch ms).
        """
        return self.at_timestamp(max(0, service_time_ms - self.ago_ms)) if self.type is PositionType.LATEST else self

    def with_stored_start(self, start_ms: int) -> Self:
        """Return a start at the time `start_ms` instead of LATEST, or instead of a start at an age. Return any other start unchanged.

        `start_ms`: the time that the job stored when it started for the first time (epoch ms).
        """
        return self.at_timestamp(start_ms) if self.type is PositionType.LATEST else self

    @property
    def is_tip(self) -> bool:
        """Whether the start is LATEST, and not a start at an age."""
        return self.type is PositionType.LATEST and not self.ago_ms

    @classmethod
    def after(cls, position: SequenceNumber) -> StartingPosition:
        """Return the start after `position`: AFTER_SEQUENCE_NUMBER if a whole record was processed.

        Inside an aggregate it is AT_SEQUENCE_NUMBER, with the sub-records to skip.
        """
        if position.is_inside_aggregate:
            return cls(PositionType.AT_SEQUENCE_NUMBER, position.sequence, skip_through=position)
        return cls(PositionType.AFTER_SEQUENCE_NUMBER, position.sequence)


def next_position(current: StartingPosition, returned: SequenceNumber | None) -> StartingPosition:
    """Return the position for the next read: after `returned`, which the consumer has returned, or `current` if that is None."""
    return current if returned is None else StartingPosition.after(returned)
