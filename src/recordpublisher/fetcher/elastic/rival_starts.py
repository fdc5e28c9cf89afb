"""Slows down starts that replace each other again and again, because two supervisors run the same job alone."""

import asyncio
import logging
import os
import random

from recordpublisher.publishers.clock import Clock

from ..leases.documents.group_store import GroupStore
from ..leases.documents.worker_record import HOST, WorkerRecord

log = logging.getLogger("recordpublisher.start")
WINDOW_SECONDS = 60.0
"""A second replacement within this time, by the clocks of the processes, has to wait for up to this time (seconds)."""
LOOK_SECONDS = 5.0
"""Seconds between two reads of the running worker's record while a start waits."""


class RivalStarts:
    """Owns how long a start leaves the shards to the worker that runs the job alone, before it replaces that worker.

    A start that replaces a worker which may be running states the time in its record (`replaced_ms`). If the worker that it finds has
    done the same within the last minute, two starts probably replace each other. Then it waits for up to a minute, or until that worker
    has ended.
    """

    def __init__(self, documents: GroupStore, clock: Clock, chance: random.Random) -> None:
        self._documents = documents
        self._clock = clock
        self._chance = chance
        self._until: float | None = None
        self.replaced_ms: int | None = None

    async def wait(self, found: WorkerRecord | None) -> bool:
        """Return whether this start has waited, so that it has to read the lease table again.

        - `found`: the record of the worker that runs alone, or None if there is none.

        Raises: StoreUnavailableError if the store does not answer; StateError if the record cannot be read.
        """
        self.replaced_ms = None
        if found is None or not _may_be_running(found):
            return False
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self.replaced_ms = now_ms
        if found.replaced_ms is None or abs(now_ms - found.replaced_ms) >= WINDOW_SECONDS * 1000:
            return False
        if self._until is None:
            seconds = WINDOW_SECONDS * (0.5 + 0.5 * self._chance.random())
            self._until = now + seconds
            log.error(
                "worker %s on %s (process %d) has replaced another worker %.0f s ago, and this start would replace it: two supervisors "
                "seem to run this job alone. Stop one of them, or start both with --group. This start waits for up to %.0f s",
                found.worker,
                found.host or "an unknown host",
                found.pid,
                abs(now_ms - found.replaced_ms) / 1000,
                seconds,
            )
        if now >= self._until:
            return False
        await self._wait_until_it_ends(found.worker, self._until)
        return True

    async def _wait_until_it_ends(self, worker: str, until: float) -> None:
        while (left := until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(LOOK_SECONDS, left))
            record = await self._documents.read_record(worker)
            if record is None or not _may_be_running(record.document):
                return


def _may_be_running(record: WorkerRecord) -> bool:
    """Return whether a worker may be running: it was not sealed, and this host does not know that its process has ended."""
    return not record.is_sealed and (record.host != HOST or _is_process(record.pid))


def _is_process(number: int) -> bool:
    if os.name != "posix":  # os.kill would end the process there
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
