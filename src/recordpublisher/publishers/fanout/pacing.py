"""Pacing: when SubscribeToShard may be called again for one consumer and shard (F2, F9)."""

from __future__ import annotations

from ..clock import Clock

SECONDS_AFTER_SUCCESS = 5.0  # service: within 5 s of a success the next call is a ResourceInUseException
SECONDS_BETWEEN_CALLS = 1.0  # service: one call a second per consumer and shard


class Pacing:
    """Owns the earliest time of the next call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._not_before = clock.monotonic()

    def called(self) -> None:
        """A call goes out now."""
        self.wait_at_least(SECONDS_BETWEEN_CALLS)

    def succeeded(self) -> None:
        """A subscription was opened just now."""
        self.wait_at_least(SECONDS_AFTER_SUCCESS)

    def wait_at_least(self, seconds: float) -> None:
        """Not before `seconds` from now; a later time that was set before stays."""
        self._not_before = max(self._not_before, self._clock.monotonic() + seconds)

    @property
    def seconds_to_wait(self) -> float:
        """Seconds until a call may go out, 0 when it may now."""
        return max(0.0, self._not_before - self._clock.monotonic())
