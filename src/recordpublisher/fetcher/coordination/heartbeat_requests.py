"""HeartbeatRequests: the numbers and times of one subtask's heartbeat requests, and which of them has no response yet."""

from .heartbeat_messages import HeartbeatRequest

PREDECESSOR_LEAD = 1_000_000_000
"""Added to a predecessor's number if the clock of its machine was ahead: 1,000 s in µs."""

MAX_CLOCK_SKEW = 5_000_000
"""How far machines' clocks usually differ at most: 5 s in µs."""


class HeartbeatRequests:
    """Owns the request number, the last request, and when it was sent and the coordinator last responded.

    Numbers begin at the wall clock in µs, so that a process that starts later has higher ones. Times are monotonic ms.
    """

    def __init__(self, first_number: int, now: float) -> None:
        self.last: HeartbeatRequest | None = None
        self.must_resend = False
        """Whether the last request has to be repeated at once, with another number or generation."""
        self._number = self._first_number = first_number
        self._started_at = now
        self._sent_at = self._responded_at = self._resumed_at = float("-inf")
        self._in_flight = 0

    @property
    def is_in_flight(self) -> bool:
        """Whether the last request has no response yet."""
        return self._in_flight > 0

    def is_heartbeat_due(self, now: float, sync_interval_ms: int) -> bool:
        """Whether a sync interval has passed; timers fire a little early or late."""
        return now - self._sent_at >= 0.9 * sync_interval_ms

    def has_response_within(self, timeout_ms: float, now: float) -> bool:
        """Whether the coordinator responded within the timeout, or may still do so after a suspension of this process (W10)."""
        return now - max(self._responded_at, self._resumed_at) < timeout_ms

    def response_age_ms(self, now: float) -> int | None:
        """Milliseconds since the last response (A1); None: there was none."""
        return None if self._responded_at == float("-inf") else round(now - self._responded_at)

    def start_request(self, now: float) -> int:
        """Assign the next number to a request that is sent now."""
        self._number += 1
        self._in_flight, self._sent_at, self.must_resend = self._number, now, False
        return self._number

    def record_sent(self, request: HeartbeatRequest) -> None:
        """This is the last request."""
        self.last = request

    def resend(self) -> None:
        """The last request has to be repeated at once."""
        self.must_resend = True

    def record_response(self, request_number: int, now: float) -> None:
        """A response, or (0) a notification, arrived."""
        self._responded_at = now
        if request_number >= self._in_flight:
            self._in_flight = 0

    def after_suspension(self, now: float) -> None:
        """This process was suspended until now; the next heartbeat is due at once."""
        self._resumed_at, self._sent_at = now, float("-inf")

    def reset_connection(self) -> None:
        """The connection is new: what was in flight is lost, and the next heartbeat is due at once."""
        self._in_flight = 0
        self._sent_at = float("-inf")

    def is_overtaken(self, last_accepted: int) -> bool:
        """Whether a request was rejected as stale only because a later one of ours arrived first."""
        return last_accepted <= self._number

    def age_ms(self, now: float) -> float:
        """Milliseconds since this process started."""
        return now - self._started_at

    def is_from_predecessor(self, number: int, now: float) -> bool:
        """Whether `number` was assigned before this process started, by a clock that was ahead of ours.

        Otherwise this process was suspended, and one that started meanwhile has replaced it.
        """
        expected_now = self._first_number + (now - self._started_at) * 1000
        return number < self._first_number + MAX_CLOCK_SKEW or number > expected_now

    def continue_after(self, number: int) -> None:
        """Number the next request, which is due at once, above a predecessor's."""
        self._number = number + PREDECESSOR_LEAD
        self.must_resend = True
