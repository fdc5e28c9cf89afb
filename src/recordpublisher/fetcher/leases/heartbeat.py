"""Heartbeat: writes this worker's record, one write at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.publishers.errors import FencedError

from .documents.group_store import GroupStore
from .documents.worker_record import WorkerRecord
from .write_permission import WritePermission


class Heartbeat:
    """Owns the number of the last heartbeat. `describe` returns the record as it should be now."""

    def __init__(
        self, group: GroupStore, worker: str, describe: Callable[[], WorkerRecord], permission: WritePermission
    ) -> None:
        self._worker = worker
        self._document = group.own_record(worker)
        self._describe = describe
        self._permission = permission
        self._beat = 0
        self._has_left = False
        self._lock = asyncio.Lock()

    async def write(self) -> WorkerRecord:
        """Write a heartbeat; returns what was written. Raises: FencedError, StoreUnavailableError."""
        async with self._lock:
            if self._has_left:
                raise FencedError(f"worker {self._worker} has left its group")
            record = self._next()
            sent = self._permission.send_time()
            await self._document.write(record)
            self._permission.confirm(sent)
            return record

    async def seal(self) -> None:
        """End this life: nothing of it can be written any more. Raises: FencedError when somebody else has done so."""
        async with self._lock:
            self._has_left = True
            await self._document.write(replace(self._next(), is_sealed=True))

    def _next(self) -> WorkerRecord:
        self._beat += 1
        return replace(self._describe(), beat=self._beat)
