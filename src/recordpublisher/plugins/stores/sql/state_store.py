"""SqlStateStore: checkpoints in a table of PostgreSQL or SQLite, fenced inside the transaction (S6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import JOB_NAME, STATE_URI

from .database import Database
from .snapshots import PositionTable

if TYPE_CHECKING:  # at run time `database` is imported first: it says which extra is missing
    from sqlalchemy import Connection

TABLE = "recordpublisher_state"


class SqlStateStore(StateStore):
    """One row for each subtask in the table `recordpublisher_state`, which many jobs may share by `flink.job.name`."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError without a database URI at `flink.state.uri` or without a name of the job."""
        uri, job = properties.value(STATE_URI), properties.value(JOB_NAME)
        if job is None:
            raise ConfigurationError(JOB_NAME.key, None, JOB_NAME.valid, reason="the state is kept under this name")
        self._database = Database(uri or "", STATE_URI.key, properties)
        self._positions = PositionTable(TABLE, job)

    async def load(self) -> list[State]:
        """Every subtask's snapshot. Raises: StateError naming the row that cannot be read."""
        return await self._database.transaction(self._positions.load)

    async def open_generation(self, subtask: int) -> int:
        """The next number; later stores of this subtask's earlier starts raise FencedError."""
        self._database.session_name = self._positions.session_name(subtask, 0)
        return await self._database.transaction(lambda connection: self._positions.open(connection, subtask))

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""

        def store(connection: Connection) -> None:
            done = self._positions.last_checkpoint(connection, subtask, generation)
            self._positions.keep(connection, subtask, done + 1, state)  # again after a lost answer: the same snapshot

        await self._database.transaction(store)

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()
