"""AccountStorage: writes each change of an account into a folder, and restores the account from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from recordpublisher.publishers.errors import ConfigurationError

from ..api_errors import ApiError
from ..streams.account import Account
from ..streams.shard import Shard
from ..streams.shard_log import TICKS_PER_MS
from ..streams.stream import Stream
from .database import Database
from .documents import StoredAccount, restore_account, stored_account

TRIM_EVERY_MS = 60_000


class AccountStorage:
    """Owns the database of one account. It listens to the logs of all shards: a record is stored before its call is answered.

    Kept are streams with their settings and tags, shards, records within retention, and consumers. Not kept: faults, subscriptions,
    what quotas have counted. Raises: ConfigurationError for a folder that it cannot use.
    """

    def __init__(self, account: Account, folder: Path) -> None:
        self._account = account
        self._database = Database(folder)
        self._stored: dict[str, int] = {}  # the last stored counter, by shard
        self._unlisten: dict[str, Callable[[], None]] = {}
        self._trimmed_ms = account.clock.now_ms()
        self._restore(folder)
        account.call_on_change(self.save)
        self.save()

    def save(self) -> None:
        """Store everything but records, and listen to new shards. Raises: ApiError when it cannot be written."""
        document = msgspec.msgpack.encode(stored_account(self._account))
        shards = dict(self._shards())
        for name, (_, shard) in shards.items():
            if name not in self._unlisten:
                self._unlisten[name] = shard.log.listen(lambda name=name, shard=shard: self._store_records(name, shard))  # type: ignore[misc]
        for name in self._unlisten.keys() - shards.keys():
            self._unlisten.pop(name)()
            self._stored.pop(name, None)
        self._write(lambda: self._database.save(document, shards))

    def close(self) -> None:
        """Store the last state, and close the file."""
        self.save()
        self._account.call_on_change(None)
        for unlisten in self._unlisten.values():
            unlisten()
        self._database.close()

    def _restore(self, folder: Path) -> None:
        document = self._database.document()
        if document is None:
            return
        stored = msgspec.msgpack.decode(document, type=StoredAccount)
        if stored.region != self._account.region:
            reason = f"its streams are in {stored.region}, and the endpoint is in {self._account.region}"
            raise ConfigurationError("data", str(folder), "a folder of the same region", reason=reason)
        restore_account(self._account, stored)
        for name, (stream, shard) in self._shards():
            shard.log.restore(self._database.records(name), shard.ending_counter)
            shard.log.trim(stream.horizon_ms)
            self._stored[name] = shard.log.tip - 1

    def _shards(self) -> list[tuple[str, tuple[Stream, Shard]]]:
        """Each shard by a name that no other one has ever had."""
        return [
            (f"{stream.name}/{stream.created_ms}/{shard.index}", (stream, shard))
            for stream in self._account.streams().values()
            for shard in stream.shards.values()
        ]

    def _store_records(self, name: str, shard: Shard) -> None:
        new = shard.log.records_after(self._stored.get(name, -1))
        if not new:
            return
        self._write(lambda: self._database.append(name, new))
        self._stored[name] = new[-1][0]
        if self._account.clock.now_ms() - self._trimmed_ms >= TRIM_EVERY_MS:
            self._trim()

    def _trim(self) -> None:
        """Remove the records past retention."""
        self._trimmed_ms = self._account.clock.now_ms()
        for name, (stream, _) in self._shards():
            self._write(lambda name=name, stream=stream: self._database.trim(name, stream.horizon_ms * TICKS_PER_MS))  # type: ignore[misc]

    @staticmethod
    def _write(write: Callable[[], None]) -> None:
        try:
            write()
        except sqlite3.Error as error:
            raise ApiError("InternalFailure", f"The data folder cannot be written: {error}", 500) from error
