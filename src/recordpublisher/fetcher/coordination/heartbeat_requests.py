"""Keeps the numbers and times of one subtask's heartbeat requests, and which of them has no response yet."""

from .heartbeat_messages import HeartbeatRequest

PREDECESSOR_LEAD = 1_000_000_000
"""Added to a predecessor's number if the clock of its machine was ahead (µs): 1,000 s."""

MAX_CLOCK_SKEW = 5_000_000
"""How far the clocks of machines usually differ at most (µs): 5 s."""


class HeartbeatRequests:
    """Owns the request number, the last request, the time at which it was sent, and the time of the last response.

    Numbers begin at the wall clock in µs, so that a process that starts later has higher numbers. Times are in monotonic ms.
    """

    def __init__(self, first_number: int, now: float) -> None:
        self.last: HeartbeatRequest | None = None
        self.must_resend = False
        """Whether the last request must be repeated at once, with another number or generation."""
        self._number = self._first_number = first_number
        self._started_at = now
        self._sent_at = self._responded_at = self._resumed_at = float("-inf")
        self._in_flight = 0

    @property
    def is_in_flight(self) -> bool:
        """Whether the last request has no response yet."""
        return self._in_flight > 0

    def is_heartbeat_due(self, now: float, sync_interval_ms: int) -> bool:
        """Return whether a sync interval has passed. A tolerance of 10 % allows for timers that fire a little early."""
        return now - self._sent_at >= 0.9 * sync_interval_ms

    def has_response_within(self, timeout_ms: float, now: float) -> bool:
        """Return whether the coordinator responded within the timeout, or may still respond after a suspension of this process (W10)."""
        return now - max(self._responded_at, self._resumed_at) < timeout_ms

    def response_age_ms(self, now: float) -> int | None:
        """Return the time since the last response (ms, A1), or None if there was none."""
        return None if self._responded_at == float("-inf") else round(now - self._responded_at)

    def start_request(self, now: float) -> int:
        """Return the next request number, and note that the request is sent now."""
        self._number += 1
        self._in_flight, self._sent_at, self.must_resend = self._number, now, False
        return self._number

    def record_sent(self, request: HeartbeatRequest) -> None:
        """Store the last request."""
        self.last = request

    def resend(self) -> None:
        """Repeat the last request at once."""
        self.must_resend = True

    def record_response(self, request_number: int, now: float) -> None:
        """Note the arrival of a response, or of a notification (number 0)."""
        self._responded_at = now
        if request_number >= self._in_flight:
            self._in_flight = 0

    def after_suspension(self, now: float) -> None:
        """Handle a suspension of this process that ends now: the next heartbeat is due at once."""
        self._resumed_at, self._sent_at = now, float("-inf")

    def reset_connection(self) -> None:
        """Handle a new connection: requests in flight are lost, and the next heartbeat is due at once."""
        self._in_flight = 0
        self._sent_at = float("-inf")

    def is_overtaken(self, last_accepted: int) -> bool:
        """Return whether a request was rejected as stale only because a later one of this process arrived first."""
        return last_accepted <= self._number

    def age_ms(self, now: float) -> float:
        """Return the time since this process started (ms)."""
        return now - self._started_at

    def is_from_predecessor(self, number: int, now: float) -> bool:
        """Return whether `number` was assigned before this process started, by a clock that was ahead of ours.

        Otherwise this process was suspended, and a process that started in the meantime has replaced it.
        """
        expected_now = self._first_number + (now - self._started_at) * 1000
        return number < self._first_number + MAX_CLOCK_SKEW or number > expected_now

    def continue_after(self, number: int) -> None:
        """Continue above a predecessor's number; the next request is due at once."""
        self._number = number + PREDECESSOR_LEAD
        self.must_resend = True
