"""CurrentWorker: the worker of this process that runs now, or ran last; each life has a worker of its own (E1)."""

from __future__ import annotations

from .worker import Worker
from .write_permission import WritePermission


class CurrentWorker:
    """Owns which worker that is. Its life is told by WorkerLives; others ask."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def become(self, worker: Worker) -> None:
        """A new life begins."""
        self._worker = worker

    @property
    def worker(self) -> Worker | None:
        """None before the first life."""
        return self._worker

    @property
    def name(self) -> str | None:
        """Its name."""
        return None if self._worker is None else self._worker.name

    @property
    def group_watermark(self) -> int | None:
        """The group's global watermark, as it knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_watermark

    @property
    def permission(self) -> WritePermission | None:
        """Whether it may write."""
        return None if self._worker is None else self._worker.permission

    def on_suspension(self) -> None:
        """This process was suspended: others may have replaced the worker meanwhile."""
        if self._worker is not None:
            self._worker.permission.on_suspension()
