"""Takes a worker out of its group from outside: asks it to leave, or seals it (E11)."""

import asyncio
import secrets

from recordpublisher.fetcher.conditional_store import ConflictError, Stored, pause
from recordpublisher.fetcher.leases.documents.group_store import MAX_ATTEMPTS, GroupStore
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.properties.groups.discovery_and_state import LEASE_DURATION

POLL_SECONDS = 1.0
DEFAULT_LEASE_SECONDS = LEASE_DURATION.default / 1000
SEALED = "others have taken its shards, because it sent no heartbeats. Its process, if it goes on, joins again as a new worker: end it"


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


async def wait_until_left(group: GroupStore, worker: str, seconds: float) -> str | None:
    """Wait until the worker has left. Return None then; after `seconds`, or when others have sealed it, return in words what is the matter,
    and what helps."""
    loop = asyncio.get_running_loop()
    beat, beats, interval = 0, 0, DEFAULT_LEASE_SECONDS / 4
    looked = heard = loop.time()
    try:
        async with asyncio.timeout(seconds):
            while (record := (await group.read_records()).get(worker)) is not None:
                if record.document.is_sealed:
                    return None if record.document.is_leaving else SEALED
                looked = loop.time()
                interval = (record.document.lease_ms or 0) / 4_000 or interval
                if record.document.beat != beat:
                    beat, heard, beats = record.document.beat, loop.time(), beats + 1
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        if (away := loop.time() - looked) > interval:
            return f"the group's store has not answered this command for {away:.0f} s"
        silent = loop.time() - heard
        if beats > 1 and silent <= 2 * interval:  # the first one was there before
            return (
                "it sends heartbeats: it stores its last checkpoint, which waits for its sink, or for others to take its shards. "
                "Wait longer (--wait), or take its shards away (--force)"
            )
        if silent > interval + POLL_SECONDS:
            return (
                f"it has sent no heartbeat for {silent:.0f} s: its process is suspended, cut off from the store, or gone. "
                "It leaves when it goes on; workers that live take its shards when its lease has ended. --force takes them away now"
            )
        return f"it was asked {seconds:g} s ago, and learns of it at its next look at the group, within {interval:g} s"
    return None


async def _announce(group: GroupStore, writer: str, version: int) -> None:
    """Workers read the table when a record names a later version. This one is sealed, so that the group deletes it."""
    await group.own_record(writer).write(WorkerRecord(writer, 1, is_sealed=True, table_version=version))


async def _unsealed(group: GroupStore, worker: str) -> Stored[WorkerRecord]:
    records = await group.read_records()
    if worker not in records or records[worker].document.is_sealed:
        living = sorted(name for name, record in records.items() if not record.document.is_sealed)
        raise StateError(f"worker {worker} is not in the group; valid: {', '.join(living) or 'there is none'}")
    return records[worker]
