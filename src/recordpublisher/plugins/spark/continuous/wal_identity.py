"""The identity of a write-ahead log: its format version, its random token, and the one query that reads it."""

from __future__ import annotations

import json
import uuid

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.errors import ConfigurationError, StateError

IDENTITY = "wal/id"
QUERY = "wal/query"
VERSION_1_IDENTITY = "spool/id"
"""The identity in a log of format version 1, which is refused."""
VERSION = 2
START_ANEW = "begin with a new checkpointLocation, a new metadataLocation and flink.stream.initpos"


class WalVersionError(StateError):
    """The log has a format that this release does not read."""


async def wal_id(store: WriteOnceStore) -> str:
    """The token of the log, created when there is none. Raises: StateError, also for a log of another format version."""
    stored = await store.get(IDENTITY)
    if stored is None:
        if await store.get(VERSION_1_IDENTITY) is not None:
            raise _of_version(1)
        identity = json.dumps({"version": VERSION, "id": uuid.uuid4().hex}).encode()
        stored = await store.put_if_absent(IDENTITY, identity)
    try:
        found = json.loads(stored)
        version, token = int(found["version"]), str(found["id"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"{IDENTITY} in metadataLocation cannot be read: {stored[:200]!r}") from error
    if version != VERSION:
        raise _of_version(version)
    return token


async def check_query(store: WriteOnceStore, query: str) -> None:
    """Raises: StateError when another query reads this log."""
    owner = await store.get(QUERY)
    if owner is not None and owner.decode() != query:
        raise _of_another_query()


async def claim_for_query(store: WriteOnceStore, query: str) -> None:
    """Reserve the log for this query. Raises: StateError when another query has reserved it."""
    if (await store.put_if_absent(QUERY, query.encode())).decode() != query:
        raise _of_another_query()


async def check_location(store: WriteOnceStore, location: str) -> None:
    """Check, when a query starts, that the location can hold a log. Later errors of the store are retried.

    Raises: ConfigurationError; StateError for a log of another format version.
    """
    try:
        await wal_id(store)
    except WalVersionError:
        raise
    except StateError as error:
        valid = "a writable folder that the driver and every executor see, or s3://bucket/prefix"
        reason = f"the write-ahead log cannot be kept there: {error}"
        raise ConfigurationError("metadataLocation", location, valid, reason=reason) from error


def _of_version(version: int) -> WalVersionError:
    return WalVersionError(
        f"metadataLocation has a write-ahead log of format version {version}, this release reads version {VERSION}: "
        + (START_ANEW if version < VERSION else "upgrade recordpublisher")
    )


def _of_another_query() -> StateError:
    return StateError(
        "metadataLocation has the write-ahead log of another query, or of this one with another checkpoint: every query needs its own; "
        "keep checkpointLocation and metadataLocation together, or delete both"
    )
