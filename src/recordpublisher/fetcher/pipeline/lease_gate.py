"""LeaseGate: whether the worker of this process may write now (E4)."""

from __future__ import annotations

from recordpublisher.publishers.clock import Clock

from ..leases.current_worker import CurrentWorker
from ..leases.write_permission import WritePermission
from .suspension import SuspensionDetector


class LeaseGate:
    """A WriteGate. Owns which permission was found given last, and in which millisecond."""

    def __init__(self, current: CurrentWorker, suspension: SuspensionDetector, clock: Clock) -> None:
        self._current = current
        self._suspension = suspension
        self._clock = clock
        self._given: WritePermission | None = None
        self._given_ms = -1

    def may_write_now(self) -> bool:
        """Whether a heartbeat was confirmed lately, and since the last suspension.

        A sink that sends from a queue may ask before each record. What was given holds while the wall clock shows the same millisecond: it
        goes on while a process is stopped or its machine sleeps, so after either the permission is asked for again.
        """
        now_ms, permission = self._clock.now_ms(), self._current.permission
        if now_ms == self._given_ms and permission is self._given:
            return True
        self._suspension.check()
        if permission is None or not permission.is_given:
            return False
        self._given, self._given_ms = permission, now_ms
        return True
