"""The offset of a query in mode CONTINUOUS: up to which entry of the write-ahead log it has read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recordpublisher.publishers.errors import StateError

from .wal_entry import UNREADABLE
from .wal_identity import START_ANEW, VERSION

VERSION_KEY = "walVersion"


@dataclass(frozen=True, slots=True)
class WalOffset:
    """`entry` is the number of the last entry that was read, 0 before the first. `records`, `bytes`: rows so far, and their data.

    `wal` is the token of the log: a log that was deleted and replaced has another; empty before the first batch of a query that began
    while the store was away. `query` is the token of the query. `waits`: how many batches without files came since, because an AvailableNow
    run had to wait.
    """

    wal: str
    query: str
    batch: int = 0
    entry: int = 0
    records: int = 0
    bytes: int = 0
    waits: int = 0

    def to_json(self) -> dict[str, Any]:
        """The form in Spark's offset log."""
        return {VERSION_KEY: VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> WalOffset:
        """The inverse of `to_json`. Raises: StateError for the offset of another mode or another format version."""
        version = 1 if "spoolVersion" in plain else plain.get(VERSION_KEY)
        if version is None:
            raise StateError(
                "the checkpoint is of a query in mode BATCH, and the mode of a query cannot change: begin with a new checkpointLocation "
                "and a new metadataLocation"
            )
        if version != VERSION:
            advice = "upgrade recordpublisher" if version > VERSION else START_ANEW
            raise StateError(f"the checkpoint has offsets of version {version}, this release reads {VERSION}: {advice}")
        try:
            return cls(**{key: value for key, value in plain.items() if key != VERSION_KEY})
        except UNREADABLE as error:
            raise StateError(f"an offset cannot be read: {json.dumps(plain)[:200]}: {error}") from error
