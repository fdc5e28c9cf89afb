"""What a publisher of a shard leaves to the next one that its factory makes, so that nothing is learnt or asked for twice."""

from __future__ import annotations

from dataclasses import dataclass

from ..positions import StartingPosition
from .rate_control import RecordSize


@dataclass(frozen=True, slots=True)
class Left:
    """`iterator` (None: none in hand) stands at `position` and is from `since`; no read before `next_read_at`, by the quota (R1);
    `unanswered_at`: when the last read was sent, if its answer was lost, else -inf; all in monotonic seconds. `size`: of the shard's
    records, so that the first read fits its room (P6)."""

    position: StartingPosition
    iterator: str | None
    since: float
    size: RecordSize
    next_read_at: float
    unanswered_at: float
