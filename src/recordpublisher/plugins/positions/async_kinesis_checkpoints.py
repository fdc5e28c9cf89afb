"""ShardCheckpoint: a row of the DynamoDB table of async-kinesis, as its versions 2.2 to 3.0 write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recordpublisher.publishers.errors import StateError

TTL_HOURS = 24
"""For how long async-kinesis keeps a row that nobody renews, unless `ttl_hours` says otherwise."""
NULL = {"NULL": True}


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """The checkpoint of one shard. The table names no stream and has no mark for the end of a shard.

    - `sequence`: the last record that was handled; None: none was, and the shard begins at the consumer's `iterator_type`.
    - `owner`: the consumer that has the shard, as name/id; `renewed_at`: its last heartbeat (epoch seconds). None: it was given up.
    """

    shard_id: str
    sequence: str | None = None
    owner: str | None = None
    renewed_at: int | None = None

    @property
    def progress(self) -> int:
        """A sort key."""
        return -1 if self.sequence is None else int(self.sequence)

    def __str__(self) -> str:
        return self.sequence or "iterator_type"


def checkpoint_from_item(item: Mapping[str, Any], place: str) -> ShardCheckpoint:
    """Read a row. Raises: StateError."""
    try:
        sequence, renewed_at = _value(item, "sequence", "S"), _value(item, "ts", "N")
        read = ShardCheckpoint(
            item["shard_id"]["S"], sequence, _value(item, "ref", "S"), None if renewed_at is None else int(renewed_at)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"a row of {place} is no checkpoint of async-kinesis: {error!r} in {str(item)[:300]}"
        ) from error
    if sequence is not None and not (sequence.isascii() and sequence.isdecimal()):
        raise StateError(
            f"the row {read.shard_id} of {place} has the sequence {sequence!r}, which is no sequence number"
        )
    return read


def checkpoint_to_item(checkpoint: ShardCheckpoint, now_seconds: int) -> dict[str, Any]:
    """The row of a shard that was given up: the next consumer takes it."""
    return {
        "shard_id": {"S": checkpoint.shard_id},
        "ref": NULL,
        "ts": NULL,
        "sequence": NULL if checkpoint.sequence is None else {"S": checkpoint.sequence},
        "ttl": {"N": str(now_seconds + TTL_HOURS * 3600)},
    }


def _value(item: Mapping[str, Any], name: str, type_name: str) -> str | None:
    given = item.get(name, NULL)
    return None if "NULL" in given else str(given[type_name])
