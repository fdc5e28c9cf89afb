"""Keeps the newest version of the lease table that this worker has seen, and reads the table only if there is a reason (E2)."""

import math
from dataclasses import replace

from recordpublisher.fetcher.conditional_store import ConflictError, Stored
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StateError

from .group_job import GroupJob
from .group_store import GroupStore
from .lease_table import LeaseTable

MAX_AGE_SECONDS = 60.0


class TableCache:
    """Owns the last table that was read or written, and the time at which it was read.

    `job` is the job of this process. A table that names no job gets it with the next write.

    Every call raises StateError if it finds the table of another job: other processes have begun that job while this process was not in the
    group (E10). The first call that finds or creates a table also raises it if a fixed number of subtasks has begun in the meantime.
    """

    def __init__(self, group: GroupStore, clock: Clock, job: GroupJob | None = None) -> None:
        self._group = group
        self._clock = clock
        self._job = job
        self._stored: Stored[LeaseTable] | None = None
        self._read_at = -math.inf

    @property
    def table(self) -> LeaseTable | None:
        """The newest known table, or None if none was read."""
        return None if self._stored is None else self._stored.document

    @property
    def version(self) -> int:
        """Version of the newest known table; 0 if none was read."""
        return 0 if self._stored is None else self._stored.document.version

    def is_older_than(self, version: int) -> bool:
        """Return whether to read the table again: another worker knows a later version, or a minute has passed."""
        return self.version < version or self._clock.monotonic() - self._read_at > MAX_AGE_SECONDS

    async def read(self) -> LeaseTable | None:
        """Read the table consistently, and return the newest known one."""
        now = self._clock.monotonic()
        found = await self._group.read_table()
        self._adopt(found)
        self._read_at = now
        return self.table

    async def replace(self, table: LeaseTable) -> bool:
        """Write the next version, and return whether this write took effect. If another write was faster, its table is known now.

        Raises: StoreUnavailableError if the outcome is unknown; the table is then read again at the next opportunity.
        """
        if table.version != self.version + 1:
            return False
        if table.job is None:
            table = replace(table, job=self._job)
        read_at, self._read_at = self._read_at, -math.inf
        try:
            written = await self._group.write_table(table, None if self._stored is None else self._stored.version)
        except ConflictError as error:
            if error.current is not None:
                self._adopt(self._group.table_of(error.current))
            self._read_at = read_at
            return False
        self._adopt(written)
        self._read_at = read_at
        return True

    def _adopt(self, stored: Stored[LeaseTable] | None) -> None:
        if stored is not None and stored.document.version > self.version:
            difference = None if self._job is None else self._job.contradiction(stored.document.job)
            if difference is not None:
                raise StateError(f"others have begun another job with the group of this process: {difference}")
            self._stored = stored
