"""A group of workers takes over from a fixed number of subtasks: stop each subtask, then write the lease table (E10)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition

from ..checkpoints.snapshot import merge_snapshots
from ..checkpoints.state_entries import StoredEntry, read_entries, write_entry
from ..conditional_store import ConditionalStore, ConflictError, pause
from ..leases.documents.group_store import MAX_ATTEMPTS, GroupStore, Stored
from ..leases.documents.lease_table import LeaseTable
from .first_group import store_first_group

log = logging.getLogger("recordpublisher.fetcher")


async def take_over_subtasks(
    store: ConditionalStore, start: StartingPosition, order_of: Callable[[str], Any] = int
) -> None:
    """Make the store that of a group, which goes on from the positions of the subtasks. Nothing to do if it is one,
    or has never been used.

    Each subtask that is running is refused its next checkpoint. It may be repeated after a crash at any point, and by many processes at
    once: one of them writes the table. `start`: where the group begins to read other streams, unless the subtasks have pinned a time.
    Raises: StateError.
    """
    group = GroupStore(store)
    for attempt in range(MAX_ATTEMPTS):
        found = await group.read_table()
        if found is not None and not found.document.is_closed:
            return
        version = 0 if found is None else found.document.version
        entries = await _stop_subtasks(store, version)
        if found is None and not entries:
            return
        next_version = max([version, *(each.entry.generation for each in entries.values())]) + 1
        try:
            if found is not None and found.document.leases:
                await _reopen(group, found, next_version)
            else:
                await _write_group(store, found, entries, next_version, start, order_of)
        except ConflictError:  # another process was faster, in either direction
            await pause(attempt)
        else:
            log.info("the positions of %d subtasks in %s belong to a group of workers now", len(entries), store.place)
            return
    raise StateError(f"{store.place} cannot be taken over: other processes take it over again and again")


async def _stop_subtasks(store: ConditionalStore, version: int) -> Mapping[str, StoredEntry]:
    """Stop every subtask, also one that begins meanwhile. Returns the entries, none of which changes any more."""
    for attempt in range(MAX_ATTEMPTS):
        entries = await read_entries(store)
        running = {name: each for name, each in entries.items() if each.entry.taken_at != version}
        if not running:
            return entries
        for name, each in running.items():
            try:
                await write_entry(store, name, each.entry.taken(version), each.version)
            except ConflictError:  # a checkpoint, or a start; or a takeover by another process
                await pause(attempt)
    raise StateError(f"{store.place} cannot be taken over: its subtasks start again and again")


async def _reopen(group: GroupStore, closed: Stored[LeaseTable], version: int) -> None:
    """Subtasks were about to take over from a group, and did not finish: its positions are where they were."""
    await group.write_table(replace(closed.document, version=version, is_closed=False), closed.version)


async def _write_group(
    store: ConditionalStore,
    closed: Stored[LeaseTable] | None,
    entries: Mapping[str, StoredEntry],
    version: int,
    start: StartingPosition,
    order_of: Callable[[str], Any],
) -> None:
    snapshots = [each.entry.snapshot for each in entries.values() if each.entry.snapshot is not None]
    restored = merge_snapshots(snapshots, order_of)
    pinned = restored.pinned_ms
    await store_first_group(
        store,
        restored.shards,
        start=start if pinned is None else StartingPosition.at_timestamp(pinned),
        version=version,
        expected=None if closed is None else closed.version,
    )
