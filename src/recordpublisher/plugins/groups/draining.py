"""Removes a worker from its group from outside: asks it to leave, or seals it (E11)."""

import asyncio
import secrets

from recordpublisher.fetcher.conditional_store import ConflictError, Stored, pause
from recordpublisher.fetcher.leases.documents.group_store import MAX_ATTEMPTS, GroupStore, WorkerRecord
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.properties.groups.job import LEASE_DURATION

POLL_SECONDS = 1.0
DEFAULT_LEASE_SECONDS = LEASE_DURATION.default / 1000
SEALED = "others have taken its shards, because it sent no heartbeats. Its process, if it continues, joins again as a new worker: end it"


async def drain(group: GroupStore, worker: str) -> None:
    """Ask a worker to leave: it stores its last checkpoint and releases all shards, and its process ends with exit code 0.

    The worker learns of it at its next read of the group, seconds later.

    Raises: StateError if the worker is not in the group; StoreUnavailableError if other processes change the lease table again and again.
    """
    await _unsealed(group, worker)
    writer = f"command-{secrets.token_hex(8)}"
    for attempt in range(MAX_ATTEMPTS):
        table = await group.read_table()
        if table is None:
            raise StateError("there is no longer a group of workers")
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
    raise StoreUnavailableError(f"the lease table was written during each of {MAX_ATTEMPTS} attempts; try again")


async def seal(group: GroupStore, worker: str) -> None:
    """End a worker at once. The others take its shards from its last checkpoint, and what it wrote after that is written again.

    If its process is running, it continues as a new worker.

    Raises: StateError if the worker is not in the group; StoreUnavailableError if it sends a heartbeat during each attempt.
    """
    for attempt in range(MAX_ATTEMPTS):
        record = await _unsealed(group, worker)
        try:
            await group.seal_record(record)
        except ConflictError:  # it has sent a heartbeat in the meantime
            await pause(attempt)
        else:
            return
    raise StoreUnavailableError(
        f"worker {worker} sent a heartbeat during each of {MAX_ATTEMPTS} attempts; stop its process, or try again"
    )


async def wait_until_left(group: GroupStore, worker: str, seconds: float) -> str | None:
    """Wait until the worker has left its group. Return None then.

    If it has not left after `seconds`, or if other workers have declared it dead (sealed it), return in words what to do.
    """
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
        if beats > 1 and silent <= 2 * interval:  # the first heartbeat may have been sent before this command
            return (
                "it sends heartbeats: it stores its last checkpoint, which waits for its sink, or for others to take its shards. "
                "Wait longer (--wait), or take its shards away (--force)"
            )
        if silent > interval + POLL_SECONDS:
            return (
                f"it has sent no heartbeat for {silent:.0f} s: its process is suspended, cut off from the store, or gone. "
                "It leaves when it continues; workers that live take its shards when its lease has ended. --force takes them away now"
            )
        return f"it was asked {seconds:g} s ago, and receives the request at its next read of the group, within {interval:g} s"
    return None


async def _announce(group: GroupStore, writer: str, version: int) -> None:
    """Write a record that names the new version of the table, because workers read the table when a record names a later version.

    The record is sealed, so that the group deletes it.
    """
    await group.own_record(writer).write(WorkerRecord(writer, 1, is_sealed=True, table_version=version))


async def _unsealed(group: GroupStore, worker: str) -> Stored[WorkerRecord]:
    records = await group.read_records()
    if worker not in records or records[worker].document.is_sealed:
        living = sorted(name for name, record in records.items() if not record.document.is_sealed)
        raise StateError(f"worker {worker} is not in the group. Valid: {', '.join(living) or 'there is none'}")
    return records[worker]
