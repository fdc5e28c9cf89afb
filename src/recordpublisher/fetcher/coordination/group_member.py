"""The subtask's side of the heartbeats: when to send which request, and what a response changes (W6, W7, W9a, W10).

The member has no clock and no sockets: its caller carries the messages and passes the time (monotonic ms).
"""

from dataclasses import dataclass

from .finished_shard_announcements import FinishedShardAnnouncements
from .heartbeat_messages import HeartbeatRequest, HeartbeatResponse, Rejection, Status, to_millis
from .heartbeat_requests import HeartbeatRequests
from .watermark_tracker import SubtaskReport, SubtaskStatus

_STATUS_NAMES: dict[SubtaskStatus, Status] = {
    SubtaskStatus.ACTIVE: "ACTIVE",
    SubtaskStatus.IDLE: "IDLE",
    SubtaskStatus.LEFT: "LEFT",
}


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The subtask's place in its group, the interval of its heartbeats, and the group's timeouts. Times are in ms."""

    group: str
    subtask: int
    parallelism: int
    sync_interval_ms: int = 1_000
    timeout_ms: int = 30_000
    startup_timeout_ms: int = 60_000

    @property
    def response_timeout_ms(self) -> float:
        """Time without a response after which the coordinator counts as unreachable (ms)."""
        return max(3 * self.sync_interval_ms, self.timeout_ms / 3)


@dataclass(slots=True)
class GroupState:
    """The state of the group according to the last response. The global watermark never falls."""

    global_watermark: int | None = None
    """The global watermark in epoch ms; None before one is known."""
    lowest_awaited: int | None = None
    lowest_subtask: int | None = None
    timed_out_subtasks: tuple[int, ...] = ()
    max_shard_watermark: int | None = None

    def update(self, response: HeartbeatResponse) -> bool:
        """Take over the state in a response, and return whether the global watermark rose."""
        self.lowest_awaited, self.lowest_subtask = response.lowest_awaited, response.lowest_subtask
        self.timed_out_subtasks, self.max_shard_watermark = response.timed_out_subtasks, response.max_shard_watermark
        has_risen = response.global_watermark is not None and not self.has_reached(response.global_watermark)
        if has_risen:
            self.global_watermark = response.global_watermark
        return has_risen

    def forget_awaited(self) -> None:
        """Forget the awaited watermark, because it is not known of another coordinator or a new generation."""
        self.lowest_awaited = None

    def has_reached(self, watermark: int) -> bool:
        """Return whether the global watermark is at least `watermark`."""
        return self.global_watermark is not None and self.global_watermark >= watermark


class GroupMember:
    """Owns what a subtask reports, and its session with a coordinator.

    `group` has the state of the group, and `shards` the state of announced shards. The request numbers begin at `first_number`, which is
    the wall clock in µs.
    """

    def __init__(self, config: MemberConfig, first_number: int, now: float) -> None:
        self.group = GroupState()
        self.shards = FinishedShardAnnouncements()
        self.is_replaced = False
        """Whether another process reports for this subtask. The global watermark in `group` is then no longer updated."""
        self.rejection: Rejection | None = None
        """The reason why the last request was rejected, or None if it was accepted."""
        self._config = config
        self._requests = HeartbeatRequests(first_number, now)
        self._coordinator_id = self._generation = self._last_start = 0
        self._report: SubtaskReport | None = None
        self._restored_watermark: int | None = None
        self._awaited_watermark: int | None = None

    # --- the subtask's state ----------------------------------------------------------------------------------------------------

    def start_at(self, watermark: int | None) -> None:
        """Set the lowest watermark in the restored state."""
        self._restored_watermark = watermark

    def report(self, report: SubtaskReport) -> None:
        """Set the status and the watermark to send."""
        self._report = report

    def await_watermark(self, watermark: int) -> None:
        """Request a notification when the global watermark reaches `watermark`, because a record is held back until then (W9a)."""
        self._awaited_watermark = watermark

    # --- sending ----------------------------------------------------------------------------------------------------------------

    def prepare_request(self, now: float) -> HeartbeatRequest | None:
        """Return the request to send now, or None if none is due.

        A heartbeat is due at every sync interval. News is sent at once, unless a request is in flight. Only LEFT does not wait for the
        response.
        """
        report = self._report
        if report is None:
            return None
        if self._requests.is_heartbeat_due(now, self._config.sync_interval_ms):
            return self._request(report, now)
        if self._requests.is_in_flight and report.status is not SubtaskStatus.LEFT:
            return None
        return self._request(report, now) if self._has_news(report) else None

    def is_reachable(self, now: float) -> bool:
        """Return whether the coordinator responded recently (W10)."""
        return self._requests.has_response_within(self._config.response_timeout_ms, now)

    def response_age_ms(self, now: float) -> int | None:
        """Return the time since the coordinator's last response (ms, A1), or None if it has never responded."""
        return self._requests.response_age_ms(now)

    def after_suspension(self, now: float) -> None:
        """Handle a suspension of this process: the coordinator counts as reachable until it does not respond to the next requests (W10)."""
        self._requests.after_suspension(now)

    def reset_connection(self) -> None:
        """Handle a new connection: requests in flight are lost."""
        self._requests.reset_connection()

    # --- receiving --------------------------------------------------------------------------------------------------------------

    def handle_response(self, response: HeartbeatResponse, now: float) -> bool:
        """Process a response, even a late or duplicated one.

        Return whether the global watermark rose or a queried shard is finished.
        """
        self._requests.record_response(response.request_number, now)
        if response.rejection is not None:
            self._handle_rejection(response, response.rejection, now)
            return False
        if response.generation < self._generation:
            return False
        self._follow(response)
        self._last_start = max(self._last_start, response.last_start)
        if response.request_number:
            self.is_replaced, self.rejection = False, None
            self.shards.confirm(response.request_number)
        has_risen = self.group.update(response)
        return self.shards.add_finished(response.finished_shards) or has_risen

    def _handle_rejection(self, response: HeartbeatResponse, rejection: Rejection, now: float) -> None:
        if rejection == "STALE_REQUEST":
            if self._requests.is_overtaken(response.last_accepted):
                return
            # Another process of this subtask has sent a higher number. If it is gone, or joined before us, its clock was ahead of
            # ours: we continue from its number. (Its last requests may be handled after our first, so we may have a generation already.)
            # Otherwise that process has replaced us, and we must not report while it runs.
            if response.is_gone or (not self._generation and self._is_predecessor(response, now)):
                self._requests.continue_after(response.last_accepted)
            else:
                self.is_replaced = True
        elif rejection == "STALE_GENERATION" and response.generation > self._generation:
            self._follow(response)
            self._requests.resend()
        self.rejection = rejection

    def _is_predecessor(self, response: HeartbeatResponse, now: float) -> bool:
        """Return whether the other process joined before this one started.

        If a restarted coordinator does not know, the wall clocks decide.
        """
        if response.joined_ms_ago is None:
            return self._requests.is_from_predecessor(response.last_accepted, now)
        return response.joined_ms_ago > self._requests.age_ms(now)

    def _follow(self, response: HeartbeatResponse) -> None:
        """Join the coordinator and the generation of a response. If either is new, it knows nothing of this subtask."""
        if response.generation > self._generation > 0:
            self.shards.start_generation()
        if (response.coordinator_id, response.generation) != (self._coordinator_id, self._generation):
            self._coordinator_id = response.coordinator_id
            self._generation = max(response.generation, self._generation)
            self._last_start = 0
            self.shards.resend_all()
            self.group.forget_awaited()

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _has_news(self, report: SubtaskReport) -> bool:
        """Return whether the coordinator should be notified before the next heartbeat."""
        last = self._requests.last
        if last is None or self._requests.must_resend or last.status != report.status.name:
            return True
        awaited = self._unreached_watermark()
        return (
            self._is_watermark_news(last.watermark, to_millis(report.watermark))
            or (awaited is not None and awaited != last.awaited_watermark)
            or self.shards.has_unsent
        )

    def _is_watermark_news(self, before: int | None, after: int | None) -> bool:
        """Return whether a changed watermark is news.

        A higher watermark is news only if another subtask awaits it; otherwise the heartbeat carries it.
        """
        if before is None or after is None:
            return before is not after
        awaited = self.group.lowest_awaited
        return after < before or (awaited is not None and before < awaited <= after)

    def _unreached_watermark(self) -> int | None:
        """Return the global watermark that this subtask awaits, or None if it awaits none or the watermark was reached."""
        awaited = to_millis(self._awaited_watermark)
        return None if awaited is None or self.group.has_reached(awaited) else awaited

    def _request(self, report: SubtaskReport, now: float) -> HeartbeatRequest:
        config, number = self._config, self._requests.start_request(now)
        request = HeartbeatRequest(
            group=config.group,
            subtask=config.subtask,
            parallelism=config.parallelism,
            generation=self._generation,
            request_number=number,
            status=_STATUS_NAMES[report.status],
            watermark=to_millis(report.watermark),
            restored_watermark=to_millis(self._restored_watermark),
            global_watermark=self.group.global_watermark,
            awaited_watermark=self._unreached_watermark(),
            finished_shards=self.shards.take_unconfirmed(number),
            queried_shards=self.shards.take_queries(),
            timeout_ms=config.timeout_ms,
            startup_timeout_ms=config.startup_timeout_ms,
            max_shard_watermark=to_millis(report.max_shard_watermark),
            coordinator_id=self._coordinator_id,
            last_start=self._last_start,
        )
        self._requests.record_sent(request)
        return request
