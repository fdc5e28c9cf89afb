"""Keeps which subtasks of a generation joined, left, lost their connection or timed out (W6)."""

import math
from collections.abc import Set

import msgspec


class GroupTimeouts(msgspec.Struct, frozen=True):
    """How long a group waits for the next heartbeat of a subtask, and for its first one (ms). `startup_ms` None means without limit."""

    heartbeat_ms: int = 30_000
    startup_ms: int | None = 60_000


class _Subtask(msgspec.Struct):
    last_heartbeat: float
    has_joined: bool = False
    has_left: bool = False
    is_timed_out: bool = False

    def hear(self, now: float) -> None:
        """Note that the subtask sent a message, or restart its timeout."""
        self.last_heartbeat = now

    def join(self) -> None:
        """Note that the subtask takes part, even if it had left or timed out before."""
        self.has_joined, self.is_timed_out, self.has_left = True, False, False

    def leave(self) -> None:
        """Note that the subtask left on purpose."""
        self.has_left = True

    def time_out(self) -> None:
        """Note that the subtask was silent for too long."""
        self.is_timed_out = True


class SubtaskLiveness:
    """Owns the last heartbeat of every subtask, and decides which have timed out. The caller passes the time (monotonic ms)."""

    def __init__(self, timeouts: GroupTimeouts, now: float) -> None:
        self.timed_out: tuple[int, ...] = ()
        """Subtasks that do not count, because they were silent for too long."""
        self._timeouts = timeouts
        self._suspension_gap_ms = timeouts.heartbeat_ms / 2
        self._subtasks: dict[int, _Subtask] = {}
        self._not_joined: set[int] = set()
        self._connected: set[int] = set()
        self._last_check = self._next_deadline = now

    @property
    def not_joined(self) -> list[int]:
        """Expected subtasks that have not joined."""
        return sorted(self._not_joined)

    def has_joined(self, subtask: int) -> bool:
        """Return whether the subtask ever joined this generation."""
        known = self._subtasks.get(subtask)
        return known is not None and known.has_joined

    def is_gone(self, subtask: int) -> bool:
        """Return whether the subtask left, timed out, or is not known."""
        known = self._subtasks.get(subtask)
        return known is None or known.has_left or known.is_timed_out

    def is_empty(self, except_for: Set[int] = frozenset()) -> bool:
        """Return whether all subtasks, other than those in `except_for`, have left, timed out or lost their connection."""
        return self._connected <= except_for

    def expect(self, subtask: int, now: float) -> None:
        """Wait for the subtask until the start-up timeout."""
        self._subtasks[subtask] = _Subtask(now)
        self._not_joined.add(subtask)

    def record_heartbeat(self, subtask: int, now: float) -> None:
        """Note that the subtask sent a message: it has joined, even if it had left or timed out before."""
        if subtask not in self._subtasks:
            self.expect(subtask, now)
        known = self._subtasks[subtask]
        known.hear(now)
        if known.is_timed_out:
            self.timed_out = tuple(each for each in self.timed_out if each != subtask)
        if not known.has_joined or known.is_timed_out or known.has_left:
            known.join()
            self._next_deadline = min(self._next_deadline, now + self._timeouts.heartbeat_ms)
            self._not_joined.discard(subtask)
        self._connected.add(subtask)

    def record_leave(self, subtask: int) -> None:
        """Note that the subtask left on purpose, so that no timeout applies to it."""
        self._subtasks[subtask].leave()
        self._connected.discard(subtask)

    def renew(self, subtask: int, now: float) -> None:
        """Note that a subtask which has joined repeated its last report."""
        self._subtasks[subtask].hear(now)

    def disconnect(self, subtask: int) -> None:
        """Note that the subtask's connection was lost. The subtask counts until the timeout, and may be replaced."""
        self._connected.discard(subtask)

    def expire(self, now: float) -> list[int]:
        """Mark the subtasks that were silent for too long, and return them. Call this several times in each timeout.

        If two calls are more than half a timeout apart, this process was suspended, so the timeout of every subtask starts again.
        """
        gap, self._last_check = now - self._last_check, now
        if gap > self._suspension_gap_ms:
            for known in self._subtasks.values():
                known.hear(now)
            self._next_deadline = now
        return self._expire_silent(now) if now >= self._next_deadline else []

    def _expire_silent(self, now: float) -> list[int]:
        silent = [subtask for subtask, known in self._subtasks.items() if self._deadline(known) <= now]
        for subtask in silent:
            self._subtasks[subtask].time_out()
            self._not_joined.discard(subtask)
            self._connected.discard(subtask)
        self.timed_out = tuple(sorted({*self.timed_out, *silent}))
        self._next_deadline = min(map(self._deadline, self._subtasks.values()), default=math.inf)
        return silent

    def _deadline(self, known: _Subtask) -> float:
        if known.has_left or known.is_timed_out:
            return math.inf
        if known.has_joined:
            return known.last_heartbeat + self._timeouts.heartbeat_ms
        startup_ms = self._timeouts.startup_ms
        return math.inf if startup_ms is None else known.last_heartbeat + startup_ms
