"""Manages one job's group by heartbeats that may be lost, delayed, duplicated, or sent by a replaced process (W6, W9a).

The coordinator has no clock and no sockets: its caller carries the messages and passes the time (monotonic ms).
"""

from ..min_heap import IndexedMinHeap
from .heartbeat_messages import HeartbeatRequest, HeartbeatResponse, Rejection
from .process_starts import ProcessStarts
from .subtask_liveness import GroupTimeouts
from .watermark_group import WatermarkGroup
from .watermark_tracker import SubtaskStatus

MAX_NOTIFIED = 16
"""How many of the lowest subtasks are notified of the watermark that others await. The rest learn it with their next heartbeat."""

MAX_LISTED = 20
"""How many timed-out subtasks a response lists at most."""


class Coordinator:
    """Owns the group of the newest generation, the last request numbers, and which subtask awaits which watermark."""

    def __init__(self, coordinator_id: int) -> None:
        self.coordinator_id = coordinator_id
        """Identifies this coordinator; a restarted one has another id."""
        self.generation = 0
        self._group: WatermarkGroup | None = None
        self._last_accepted: dict[int, int] = {}
        self._joined_at: dict[int, float | None] = {}
        """Time at which each subtask's process first reported; None if it first reported to an earlier coordinator."""
        self._starts = ProcessStarts()
        self._awaited: IndexedMinHeap[int] = IndexedMinHeap()
        self._notified_of: dict[int, int] = {}
        self._timed_out: list[int] = []
        self._has_changed = False

    @property
    def global_watermark(self) -> int | None:
        """The global watermark (epoch ms), or None before one is known."""
        return None if self._group is None else self._group.global_watermark

    @property
    def lowest_subtask(self) -> int | None:
        """The subtask that keeps the global watermark from rising, or None if there is none."""
        return None if self._group is None else self._group.lowest_subtask

    @property
    def is_empty(self) -> bool:
        """Whether no subtask is connected."""
        return self._group is None or self._group.liveness.is_empty()

    def handle_heartbeat(self, request: HeartbeatRequest, now: float) -> HeartbeatResponse:
        """Process a request and return the response; a rejected request does not change the group."""
        self._expire(now)
        starts_generation = self._starts_generation(request)
        rejection = self._rejection(request, starts_generation)
        if rejection is not None:
            return self._reject(request, rejection, now)
        if starts_generation or self._group is None:
            group = self._open_generation(request, now)
        else:
            group = self._group
            # After a restart of this coordinator the subtasks may know a newer generation.
            self.generation = max(self.generation, request.generation)
        subtask = request.subtask
        self._last_accepted[subtask] = request.request_number
        if request.generation == 0:
            self._add_start(group, request, now)
        else:
            self._joined_at.setdefault(subtask, None)
        if request.coordinator_id == self.coordinator_id:
            self._starts.record_alive(subtask, request.last_start)
        group.start_at(request.restored_watermark)
        group.raise_to(request.global_watermark)
        group.finished_shards.add(request.finished_shards, subtask)
        group.report(subtask, SubtaskStatus[request.status], request.watermark, now, request.max_shard_watermark)
        is_held = request.status == "ACTIVE" and _is_above(request.awaited_watermark, group.global_watermark)
        self._awaited.set(subtask, request.awaited_watermark if is_held else None)
        self._has_changed = True
        finished = tuple(key for key in request.queried_shards if self._is_finished(group, key, subtask))
        return self._respond(group, subtask, request.request_number, finished)

    def expire(self, now: float) -> list[int]:
        """Exclude silent subtasks, and return those that timed out since the last call.

        Call it several times in each timeout (W6).
        """
        self._expire(now)
        timed_out, self._timed_out = self._timed_out, []
        return timed_out

    def disconnect(self, subtask: int, request_number: int) -> None:
        """Handle the loss of the connection that brought request `request_number`."""
        if self._group is not None and self._last_accepted.get(subtask) == request_number:
            self._group.liveness.disconnect(subtask)

    def take_notifications(self) -> list[tuple[int, HeartbeatResponse]]:
        """Return the notifications that became due since the last call (W9a).

        A subtask is notified once when the watermark that it awaits was reached. The lowest subtasks are notified once of the watermark
        that others await.
        """
        group = self._group
        if not self._has_changed or group is None:
            return []
        self._has_changed = False
        reached = self._take_reached(group)
        awaited = self._lowest_awaited()
        blocking = [] if awaited is None else group.subtasks_below(awaited, MAX_NOTIFIED)
        unaware = [subtask for subtask in blocking if self._notified_of.get(subtask) != awaited]
        return [(subtask, self._respond(group, subtask, 0)) for subtask in dict.fromkeys([*reached, *unaware])]

    # --- generations ------------------------------------------------------------------------------------------------------------

    def _starts_generation(self, request: HeartbeatRequest) -> bool:
        """Return whether this request, if it is accepted, opens a new generation."""
        if self._group is None:
            return True
        liveness, is_start = self._group.liveness, request.generation == 0
        if request.parallelism != self._group.parallelism:
            # The job was rescaled. A process that starts has the new parallelism. A running process may have the old one: it opens a
            # generation only when no subtask of the other parallelism is connected.
            return is_start or liveness.is_empty()
        # The job restarts if this subtask has joined before, and all connected subtasks restart as well.
        unconfirmed = self._starts.unconfirmed
        may_restart_job = (is_start and liveness.has_joined(request.subtask)) or request.subtask in unconfirmed
        return may_restart_job and liveness.is_empty(except_for={request.subtask, *unconfirmed})

    def _rejection(self, request: HeartbeatRequest, starts_generation: bool) -> Rejection | None:
        """Return why the request is rejected, or None if it is accepted."""
        if request.request_number <= self._last_accepted.get(request.subtask, -1):
            return "STALE_REQUEST"
        if starts_generation or self._group is None:
            return None
        if request.parallelism != self._group.parallelism:
            return "PARALLELISM_MISMATCH"
        return "STALE_GENERATION" if 0 < request.generation < self.generation else None

    def _open_generation(self, request: HeartbeatRequest, now: float) -> WatermarkGroup:
        """Forget watermarks, finished shards and awaited watermarks.

        Request numbers stay, so that delayed requests are still rejected.
        """
        requested = request.generation or request.request_number
        self.generation = requested if self._group is None else max(self.generation + 1, requested)
        timeouts = GroupTimeouts(request.timeout_ms, request.startup_timeout_ms)
        self._group = WatermarkGroup(request.parallelism, timeouts, now)
        self._awaited = IndexedMinHeap()
        self._notified_of.clear()
        self._starts.confirm_all()
        return self._group

    # --- starts -----------------------------------------------------------------------------------------------------------------

    def _add_start(self, group: WatermarkGroup, request: HeartbeatRequest, now: float) -> None:
        """Register a process that has joined. It announces again which shards are finished in the state that it restored.

        A machine that vanished without closing its connections counts as connected until the timeout. If the job restarts from an older
        checkpoint in that time, the global watermark belongs to records that will be read again. So a process that begins below it does not
        receive it until another process has proved that the job runs.
        """
        subtask, restored = request.subtask, request.restored_watermark
        self._joined_at[subtask] = now
        value = group.global_watermark
        self._starts.add(subtask, value is not None and (restored is None or restored < value))
        group.finished_shards.forget(subtask)

    def _is_finished(self, group: WatermarkGroup, shard: str, asking: int) -> bool:
        """Return whether a shard is finished for the process that asks.

        The process that announced it must have been alive after the asking process started.

        Shards may have been finished on a machine that vanished, and a job that restarted from an older checkpoint reads them again.
        """
        announced_by = group.finished_shards.subtask_of(shard)
        if announced_by is None or announced_by == asking:
            return announced_by is not None
        return self._starts.was_alive_after_start_of(announced_by, asking)

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        timed_out = [] if self._group is None else self._group.expire(now)
        self._timed_out += timed_out
        self._has_changed |= bool(timed_out)

    def _take_reached(self, group: WatermarkGroup) -> list[int]:
        """Remove the subtasks whose awaited watermark is reached, and return them."""
        reached: list[int] = []
        value = group.global_watermark
        while value is not None and (lowest := self._awaited.lowest()) is not None and lowest[0] <= value:
            self._awaited.set(lowest[1], None)
            reached.append(lowest[1])
        return reached

    def _lowest_awaited(self) -> int | None:
        lowest = self._awaited.lowest()
        return None if lowest is None else int(lowest[0])

    def _reject(self, request: HeartbeatRequest, rejection: Rejection, now: float) -> HeartbeatResponse:
        joined_at = self._joined_at.get(request.subtask)
        return HeartbeatResponse(
            self.coordinator_id,
            self.generation,
            request.request_number,
            rejection=rejection,
            last_accepted=self._last_accepted.get(request.subtask, 0),
            joined_ms_ago=None if joined_at is None else round(now - joined_at),
            is_gone=self._group is None or self._group.liveness.is_gone(request.subtask),
            last_start=self._starts.last,
        )

    def _respond(
        self, group: WatermarkGroup, subtask: int, request_number: int, finished: tuple[str, ...] = ()
    ) -> HeartbeatResponse:
        """Return the state of the group for one subtask, including the watermark that others await.

        While the start of the subtask's process is unconfirmed, the response has no state.
        """
        awaited = self._lowest_awaited()
        if awaited is not None:
            self._notified_of[subtask] = awaited
        if subtask in self._starts.unconfirmed:
            return HeartbeatResponse(self.coordinator_id, self.generation, request_number, last_start=self._starts.last)
        return HeartbeatResponse(
            self.coordinator_id,
            self.generation,
            request_number,
            group.global_watermark,
            awaited,
            group.lowest_subtask,
            group.liveness.timed_out[:MAX_LISTED],
            finished,
            max_shard_watermark=group.max_shard_watermark,
            last_start=self._starts.last,
        )


def _is_above(awaited: int | None, value: int | None) -> bool:
    return awaited is not None and (value is None or awaited > value)
