"""SinkPositionStore: the positions of a group whose sink keeps them, in one transaction with what it writes."""

from collections.abc import Collection

from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from ..leases.documents.group_store import GroupStore
from ..leases.documents.position_part import Positions, StoredPositions, positions_to_json
from ..leases.documents.worker_record import WorkerRecord
from ..leases.position_store import PositionStore, read_parts, seal_parts
from ..sink import State, WorkerPositions
from ..stored_documents import check_document


class SinkPositionStore(PositionStore):
    """One worker's positions, and those of others, as the sink has them. Their form is that of a position part.

    Positions that were imported are in parts: there no worker has written rows yet.
    """

    def __init__(self, kept: WorkerPositions, worker: str, group: GroupStore) -> None:
        self._kept = kept
        self._group = group
        self._worker = worker

    async def join(self) -> None:
        """Create the worker's entry, before its record names it."""
        await self._kept.join(self._worker)

    async def commit(self, positions: Positions, shards: Collection[str] = ()) -> None:
        """Store the positions together with what was written of these shards.

        Raises: FencedError also when the sink's store did not answer: nobody knows whether the commit is stored, so another worker goes
        on from what is.
        """
        try:
            await self._kept.commit({"positions": positions_to_json(positions)}, shards)
        except StoreUnavailableError as error:
            raise FencedError(
                f"a commit of the sink may or may not be stored, its store did not answer: {error}"
            ) from error

    async def read(self, record: WorkerRecord) -> Positions:
        """Read an entry."""
        if record.parts:
            return await read_parts(self._group, record)
        return _positions(await self._kept.read(record.worker), record.worker)

    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal an entry, then read it."""
        if record.parts:
            return await seal_parts(self._group, record)
        return _positions(await self._kept.seal(record.worker), record.worker)

    async def delete(self, worker: str) -> None:
        """Delete an entry."""
        await self._kept.forget(worker)


def _positions(state: State | None, worker: str) -> Positions:
    if state is None:
        return {}
    return check_document(state, StoredPositions, f"the positions of worker {worker} in the sink").by_key()
