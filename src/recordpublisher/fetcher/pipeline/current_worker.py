"""Holds the current worker of this process in its group. `LeaseGate` decides whether that worker may write to the sink now (E4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordpublisher.publishers.clock import Clock

from .process_suspension import SuspensionDetector

if TYPE_CHECKING:
    from ..leases.heartbeat import WritePermission

    # Imported only for its type, because a job that runs alone does not load the code of groups.
    from ..leases.worker import Worker


class CurrentWorker:
    """Holds the current worker of this process in its group, or the last one after the process has left the group.

    If other processes replace the worker, the process joins the group again as a new worker with a new name. `GroupMembership` sets the
    worker, and other classes only read it.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def become(self, worker: Worker) -> None:
        """Replace the worker, because the process joins its group under a new name."""
        self._worker = worker

    @property
    def worker(self) -> Worker | None:
        """The current worker, or None before the first one."""
        return self._worker

    @property
    def name(self) -> str | None:
        """Name of the current worker, or None if the process has not joined its group."""
        return None if self._worker is None else self._worker.name

    @property
    def group_watermark(self) -> int | None:
        """The global watermark of the group, as far as this process knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_watermark

    @property
    def group_maximum(self) -> int | None:
        """The highest watermark of any shard of the group, as far as this process knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_maximum

    @property
    def waits_for_others(self) -> bool:
        """Whether the watermark of the group waits for a shard of another worker, as far as this process knows."""
        return self._worker is not None and self._worker.waits_for_others

    @property
    def permission(self) -> WritePermission | None:
        """The permission of the current worker to write to the sink, or None before the first worker."""
        return None if self._worker is None else self._worker.permission

    def on_suspension(self) -> None:
        """Forbid writing until a heartbeat is confirmed. Called after the process was suspended, when the worker may have been replaced."""
        if self._worker is not None:
            self._worker.permission.on_suspension()


class LeaseGate:
    """Decides whether the process may write to the sink."""

    def __init__(self, current: CurrentWorker, suspension: SuspensionDetector, clock: Clock) -> None:
        self._current = current
        self._suspension = suspension
        self._clock = clock
        self._given: WritePermission | None = None
        self._given_ms = -1

    def may_write_now(self) -> bool:
        """Return whether a heartbeat was confirmed lately, and since the last suspension of the process.

        A sink that sends from a queue may ask before each record, so a positive answer is reused within the same millisecond of the wall
        clock, which continues during a suspension.
        """
        now_ms, permission = self._clock.now_ms(), self._current.permission
        if now_ms == self._given_ms and permission is self._given:
            return True
        self._suspension.check()
        if permission is None or not permission.is_given:
            return False
        self._given, self._given_ms = permission, now_ms
        return True
