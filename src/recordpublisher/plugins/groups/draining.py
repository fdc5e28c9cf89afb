"""Takes a worker out of its group from outside: asks it to leave, or seals it (E11)."""

import asyncio
import secrets

from recordpublisher.fetcher.conditional_store import ConflictError, Stored, pause
from recordpublisher.fetcher.leases.documents.group_store import MAX_ATTEMPTS, GroupStore
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.publishers.errors import StateError, StoreUnavailableError

POLL_SECONDS = 1.0


async def drain(group: GroupStore, worker: str) -> None:
    """Ask a worker to leave: it stores its last checkpoint, gives all shards up, and its process ends with exit code 0.

    It learns of it at its next look at the group, seconds later. Raises: StateError for a worker that is not there.
    """
    await _unsealed(group, worker)
    writer = f"command-{secrets.token_hex(8)}"
    for attempt in range(MAX_ATTEMPTS):
        table = await group.read_table()
        if table is None:
            raise StateError("there is no group of workers any more")
        if worker in table.document.drained:
            return
        asked = table.document.after(writer, drained=[worker])
        try:
            await group.write_table(asked, table.version)
        except ConflictError:
            await pause(attempt)
        else:
            await _announce(group, writer, asked.version)
            return
    raise StoreUnavailableError(f"the lease table was written {MAX_ATTEMPTS} times meanwhile: try again")


async def seal(group: GroupStore, worker: str) -> None:
    """End a worker at once: the others take its shards from its last checkpoint, and what it wrote after that is written again.

    Its process, if it lives, goes on as a new worker. Raises: StateError for a worker that is not there.
    """
    for attempt in range(MAX_ATTEMPTS):
        record = await _unsealed(group, worker)
        try:
            await group.seal_record(record)
        except ConflictError:  # it has sent a heartbeat meanwhile
            await pause(attempt)
        else:
            return
    raise StoreUnavailableError(f"worker {worker} sent {MAX_ATTEMPTS} heartbeats meanwhile: try again")


async def wait_until_left(group: GroupStore, worker: str, seconds: float) -> bool:
    """Wait until the worker has left or was sealed; returns whether it has."""
    try:
        async with asyncio.timeout(seconds):
            while not await _has_left(group, worker):  # noqa: ASYNC110 - another process
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False
    return True


async def _announce(group: GroupStore, writer: str, version: int) -> None:
    """Workers read the table when a record names a later version. This one is sealed, so that the group deletes it."""
    await group.own_record(writer).write(WorkerRecord(writer, 1, is_sealed=True, table_version=version))


async def _has_left(group: GroupStore, worker: str) -> bool:
    record = (await group.read_records()).get(worker)
    return record is None or record.document.is_sealed


async def _unsealed(group: GroupStore, worker: str) -> Stored[WorkerRecord]:
    records = await group.read_records()
    if worker not in records or records[worker].document.is_sealed:
        living = sorted(name for name, record in records.items() if not record.document.is_sealed)
        raise StateError(f"worker {worker} is not in the group; valid: {', '.join(living) or 'there is none'}")
    return records[worker]
