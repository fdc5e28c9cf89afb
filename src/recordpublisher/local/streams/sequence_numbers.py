"""Sequence numbers: 56 decimal digits that grow along a shard, a child's always above its parents'."""

from dataclasses import dataclass

TICKS_PER_MS = 1_000_000
_COUNTER_DIGITS = 20


@dataclass(frozen=True, slots=True)
class SequenceNumbers:
    """The spelling of one shard's numbers: 36 digits that name the shard, then its counter.

    The counter is the arrival time in ms times a million, so it fits 64 bits and moves on by itself while nothing
    arrives, as the service's continuation numbers do.
    """

    prefix: str

    @classmethod
    def of_shard(cls, epoch: int, index: int) -> "SequenceNumbers":
        """Return the numbers of shard `index` opened at `epoch` (ms, later than its parents')."""
        return cls(f"49{epoch:014d}{index:020d}")

    def text(self, counter: int) -> str:
        """Spell a counter."""
        return f"{self.prefix}{counter:020d}"

    def counter(self, text: str) -> int | None:
        """Return the counter in `text`, or None when the number is not of this shard."""
        if not text.startswith(self.prefix) or len(text) != len(self.prefix) + _COUNTER_DIGITS:
            return None
        digits = text[len(self.prefix) :]
        return int(digits) if digits.isdecimal() else None
