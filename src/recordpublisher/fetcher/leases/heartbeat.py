"""Writes this worker's record, one write at a time. The first heartbeat joins the group, and must not come too late (E12)."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from .documents.group_store import GroupStore
from .documents.worker_record import WorkerRecord
from .write_permission import WritePermission

log = logging.getLogger("recordpublisher.group")


class Heartbeat:
    """Owns the number of the last heartbeat. `describe` returns the current record, with the given number."""

    def __init__(
        self, group: GroupStore, worker: str, describe: Callable[[int], WorkerRecord], permission: WritePermission
    ) -> None:
        self._worker = worker
        self._document = group.own_record(worker)
        self._describe = describe
        self._permission = permission
        self._beat = 0
        self._sealed: WorkerRecord | None = None
        self._is_sealed = False
        self._is_answered = True
        self._lock = asyncio.Lock()

    async def write(self) -> WorkerRecord:
        """Write a heartbeat, and return the written record.

        Raises: FencedError if the worker was sealed or has left; StoreUnavailableError if the store does not answer.
        """
        async with self._lock:
            if self._sealed is not None:
                raise FencedError(f"worker {self._worker} has left its group")
            record = self._next()
            sent = self._permission.send_time()
            try:
                await self._document.write(record)
            except StoreUnavailableError:
                self._is_answered = False
                raise
            self._permission.confirm(sent)
            if not self._is_answered:
                log.info("the store of the group of %s answers again", self._worker)
                self._is_answered = True
            return record

    async def seal(self) -> None:
        """End this life, so that nothing of it can be written later.

        A sealed record never changes, so each attempt writes the same one. Raises: FencedError if another process has sealed this worker;
        StoreUnavailableError if the store does not answer.
        """
        async with self._lock:
            if self._sealed is None:
                self._sealed = msgspec.structs.replace(self._next(), is_sealed=True)
            if not self._is_sealed:
                await self._document.write(self._sealed)
                self._is_sealed = True

    def _next(self) -> WorkerRecord:
        self._beat += 1
        return self._describe(self._beat)


class LateJoinError(FencedError):
    """Raised if the worker must begin again under another name. It has read nothing under this name."""


async def join_group(
    write_first: Callable[[], Awaitable[None]], heartbeat: Heartbeat, clock: Clock, duration: float
) -> None:
    """Write the first heartbeat. `write_first` repeats it until it is confirmed; `duration` is the length of a lease in seconds.

    An attempt without an answer may have taken effect. Other workers seal such a worker if its heartbeat does not change for a lease
    duration, and delete its record. A later attempt would store the record again, while deletions of it may still be in progress. The time
    is measured by two clocks, because one of them may have stopped while the process was suspended.

    Raises: LateJoinError if the first heartbeat was confirmed too late, or if other workers have already sealed the worker.
    """
    began, began_ms = clock.boottime(), clock.now_ms()
    try:
        await write_first()
    except FencedError as error:
        raise LateJoinError(f"it was sealed before its first heartbeat was confirmed: {error}") from error
    seconds = max(clock.boottime() - began, (clock.now_ms() - began_ms) / 1000)
    if seconds >= duration:
        with contextlib.suppress(FencedError, StoreUnavailableError):
            await heartbeat.seal()
        raise LateJoinError(
            f"its first heartbeat was confirmed after {seconds:.0f} s, and its record may have been deleted in the meantime"
        )
