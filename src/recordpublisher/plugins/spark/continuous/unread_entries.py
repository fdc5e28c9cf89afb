"""UnreadEntries: the part of the write-ahead log that the query has not read yet, each entry fetched from the store once."""

from __future__ import annotations

from recordpublisher.plugins.stores.write_once_store import ObjectStore
from recordpublisher.publishers.errors import StateError

from .wal_entry import WalEntry, entry_numbers, read_entries_without_state
from .wal_identity import START_ANEW
from .wal_names import entry_name


class UnreadEntries:
    """Owns the entries that were fetched."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._fetched: dict[int, WalEntry] = {}

    async def behind(self, read: int) -> dict[int, WalEntry]:
        """The entries behind the last one that was read, in order and without a gap. Raises: StateError when one is gone.

        A listing may miss what was put while it was made. Then what it has behind the gap comes with the next call.
        """
        listed = {number for number in await entry_numbers(self._store) if number > read}
        end = read
        while end + 1 in listed:
            end += 1
        # Entries are put one after the other: if a later one is listed, the next one was missed by the listing, or was removed.
        if any(number > end for number in listed):
            await check_entry(self._store, end + 1)
        numbers = range(read + 1, end + 1)
        missing = [number for number in numbers if number not in self._fetched]
        self._fetched |= await read_entries_without_state(self._store, missing)
        return {number: self._fetched[number] for number in numbers}

    def forget(self, read: int) -> None:
        """Drop everything up to an entry."""
        self._fetched = {number: entry for number, entry in self._fetched.items() if number > read}


async def check_entry(store: ObjectStore, number: int) -> None:
    """Whether the log still has an entry; a query that needs one that is gone would wait for it for ever. Raises: StateError."""
    if await store.get(entry_name(number)) is None:
        raise StateError(
            f"{entry_name(number)} of the write-ahead log is gone: the checkpoint is older than what the log keeps "
            "(minBatchesToRetain), or files were removed by hand or by a lifecycle rule. What they had is lost for this query: "
            f"{START_ANEW}"
        )
