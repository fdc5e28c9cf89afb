"""Holds the worker of this process that runs now, or ran last, and decides whether it may write to the sink now (`LeaseGate`, E4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordpublisher.publishers.clock import Clock

from .process_suspension import SuspensionDetector

if TYPE_CHECKING:
    from ..leases.heartbeat import WritePermission

    # imported only for its type, because a job that runs alone does not load the code of groups
    from ..leases.worker import Worker


class CurrentWorker:
    """Owns the current worker. A process has one worker after another (E1). WorkerLives sets it, and others only read it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def become(self, worker: Worker) -> None:
        """Set the new worker."""
        self._worker = worker

    @property
    def worker(self) -> Worker | None:
        """The current worker, or None before the first one."""
        return self._worker

    @property
    def name(self) -> str | None:
        """Name of the worker of this process, or None if it has not joined."""
        return None if self._worker is None else self._worker.name

    @property
    def group_watermark(self) -> int | None:
        """The group's global watermark as far as the worker knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_watermark

    @property
    def group_maximum(self) -> int | None:
        """The highest watermark of a shard of the group, as far as the worker knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_maximum

    @property
    def permission(self) -> WritePermission | None:
        """The worker's permission to write to the sink, or None before the first worker."""
        return None if self._worker is None else self._worker.permission

    def on_suspension(self) -> None:
        """Withdraw the permission until a heartbeat is confirmed: during the suspension others may have replaced the worker."""
        if self._worker is not None:
            self._worker.permission.on_suspension()


class LeaseGate:
    """Owns the permission that was last found given, and the millisecond in which that was."""

    def __init__(self, current: CurrentWorker, suspension: SuspensionDetector, clock: Clock) -> None:
        self._current = current
        self._suspension = suspension
        self._clock = clock
        self._given: WritePermission | None = None
        self._given_ms = -1

    def may_write_now(self) -> bool:
        """Return whether a heartbeat was confirmed lately, and since the last suspension.

        A sink that sends from a queue may ask before each record. The answer is reused while the wall clock shows the
        same millisecond. The wall clock continues while a process is stopped or its machine sleeps, so after either the
        permission is checked again.
        """
        now_ms, permission = self._clock.now_ms(), self._current.permission
        if now_ms == self._given_ms and permission is self._given:
            return True
        self._suspension.check()
        if permission is None or not permission.is_given:
            return False
        self._given, self._given_ms = permission, now_ms
        return True
