"""Defines a claim: the record of what one task has read of its shards. A task stores its claim once, before it returns its first row."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.spark_read_claims import BatchId, ReadClaimStore, read_claim_store_of
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.user_code import describe_error

from ..options.spark_options import SparkOptions
from ..outages import with_short_retries
from ..python_worker import worker_loop
from .offset import BatchOffset, ShardOffset

VERSION = 3
"""Claims of earlier versions are refused; version 1 has no version field."""
RowId = tuple[str, int]
"""Sequence number and sub-sequence number of a row."""


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """The record of what one task has read. `shards` has one read for each shard, by `Shard.key`.

    - `began_ms`: when the reads began, by the executor's clock (epoch ms).
    - `subscribed`: whether this or an earlier attempt of the task has subscribed to the shards.
    """

    shards: Mapping[str, ShardRead]
    began_ms: int
    subscribed: bool = False

    def to_bytes(self) -> bytes:
        """Return the claim in the form in which it is stored: compressed JSON.

        For a thousand shards, the compression divides the size by five and takes 3 ms of CPU (measured).
        """
        plain = {
            "v": VERSION,
            "beganMs": self.began_ms,
            "subscribed": self.subscribed,
            "shards": {key: read.to_json() for key, read in self.shards.items()},
        }
        return zlib.compress(json.dumps(plain).encode(), 1)

    @classmethod
    def from_bytes(cls, stored: bytes) -> ReadClaim:
        """Return the claim that `to_bytes` has stored. JSON that is not compressed is also accepted.

        Raises: StateError if `stored` is something else.
        """
        try:
            plain = json.loads(stored if stored.startswith(b"{") else zlib.decompress(stored))
            _check_version(plain.get("v", 1))
            shards = {key: ShardRead.from_json(entry) for key, entry in plain["shards"].items()}
            return cls(shards, plain["beganMs"], plain["subscribed"])
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
            raise StateError(
                f"a claim (what a task has read) in metadataLocation cannot be read ({describe_error(error)}): "
                f"{stored[:200]!r}; does another program write there?"
            ) from error

    def is_of(self, starts: Mapping[str, ShardState]) -> bool:
        """Return whether the task has read exactly the shards of `starts`, each from that state."""
        return {key: read.start for key, read in self.shards.items()} == starts


@dataclass(frozen=True, slots=True)
class ShardRead:
    """The read of one shard by a task: `records` rows between the states `start` and `end`.

    - `first`, `last`: the ids of the first and the last row.
    - `bytes`: bytes of payload before de-aggregation.
    - `seen`: observations for the plan of the next batch.
    """

    start: ShardState
    end: ShardState
    records: int = 0
    bytes: int = 0
    first: RowId | None = None
    last: RowId | None = None
    seen: ShardObservation = ShardObservation()  # noqa: RUF009 - is frozen

    @property
    def had_response(self) -> bool:
        """Whether the service responded to any request of this read."""
        return self.seen.had_response(self.records)

    @property
    def is_at_end(self) -> bool:
        """Whether the shard was read to its tip or to the emit limit."""
        return self.seen.at_tip or self.seen.past_event_time

    @property
    def made_progress(self) -> bool:
        """Whether the read returned records, moved the position, or reached the tip, the emit limit or the end of the shard."""
        before, after = self.start, self.end
        has_moved = (before.position, before.continuation) != (after.position, after.continuation)
        return has_moved or self.is_at_end or after.ended or self.records > 0

    def to_json(self) -> dict[str, Any]:
        """Return the read as a dict of plain values, for JSON."""
        return {
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "records": self.records,
            "bytes": self.bytes,
            "first": self.first,
            "last": self.last,
            "seen": self.seen.to_json(),
        }

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardRead:
        """Return the read that `to_json` has made into `entries`."""
        return cls(
            start=ShardState.from_json(entries["start"]),
            end=ShardState.from_json(entries["end"]),
            records=entries["records"],
            bytes=entries["bytes"],
            first=_row_id(entries["first"]),
            last=_row_id(entries["last"]),
            seen=ShardObservation.from_json(entries["seen"]),
        )


@dataclass(slots=True)
class BatchClaims:
    """The claims of a batch (what its tasks have read).

    - `shards`: the read of each shard, by `Shard.key`.
    - `missing`: the numbers of the tasks without a claim.
    - `began_ms`: when each task began to read (epoch ms).
    - `subscribed_ms`: when the last read that may have subscribed began (epoch ms). It is 0 if there is no such read.
    - `has_token`: whether the store has the token that was written when the batch was planned.
    """

    shards: dict[str, ShardRead] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    subscribed_ms: int = 0
    began_ms: list[int] = field(default_factory=list)
    has_token: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether no task has read a record."""
        return not any(read.records for read in self.shards.values())

    @property
    def is_at_end(self) -> bool:
        """Whether every shard was read to its tip or to the emit limit."""
        return all(read.is_at_end for read in self.shards.values())

    @property
    def is_unread(self) -> bool:
        """Whether no task has stored a claim. Then the sink did not read the batch."""
        return bool(self.missing) and not self.shards


def load_batch_claims(store: ReadClaimStore, offset: BatchOffset) -> BatchClaims:
    """Return the claims of the batch that `offset` plans (what its tasks have read).

    A claim counts as missing if its task did not read what the offset plans. If a claim is missing, the next batch reads the task's shards
    again.
    """
    claims = BatchClaims()
    if offset.batch == 0:
        return claims
    groups = offset.tasks()
    stored = store.load(batch_id(offset), map(claim_name, range(len(groups))), offset.store_token)
    claims.has_token = stored.has_marker
    for number, group in enumerate(groups):
        claim = _claim_of(group, stored.claims.get(claim_name(number)))
        if claim is None:
            claims.missing.append(number)
            continue
        claims.shards |= claim.shards
        claims.began_ms.append(claim.began_ms)
        if claim.subscribed:
            claims.subscribed_ms = max(claims.subscribed_ms, claim.began_ms)
    return claims


def _claim_of(group: list[ShardOffset], stored: bytes | None) -> ReadClaim | None:
    if stored is None:
        return None
    claim = ReadClaim.from_bytes(stored)
    return claim if claim.is_of({entry.key: entry.state for entry in group}) else None


def claims_elsewhere_error(store: ReadClaimStore, offset: BatchOffset) -> StateError:
    """Return the error for a query whose store does not have the claims of the batch of `offset` (what its tasks have read)."""
    return StateError(
        f"{store.key} {store.place} has no claims (what tasks have read) of this query ({offset.query}), which is at batch "
        f"{offset.batch}; they were deleted, or are in another place. Set the place in which they are, or set "
        "onMetadataLoss=REPLAY: nothing is lost, but all records of that batch come again, even if the sink has them"
    )


class StoreVisibilityCheck:
    """Checks that driver, tasks and later runs of a query use the same claim store. It writes a token into the store for that.

    It owns the token of each query. A query keeps its token across restarts as long as the store has it.
    """

    def __init__(self, store: ReadClaimStore) -> None:
        self._store = store
        self._tokens: dict[str, str] = {}
        self._is_location_checked = False
        self._checked_plan = ""

    def check_location(self) -> None:
        """Check once in each process that the store's location can hold claims. Raises: ConfigurationError if it cannot."""
        if not self._is_location_checked:
            self._store.write_marker("location-check", "driver")
            self._is_location_checked = True

    def was_planned_here(self, offset: BatchOffset) -> bool:
        """Return whether the batch of `offset` was planned with this claim store. The store then has the token that the offset names."""
        return bool(offset.store_token) and self._store.has_marker(offset.query, offset.store_token)

    def check_not_removed(self, offset: BatchOffset) -> None:
        """Check that the missing claims of a batch were not removed after later batches. Call it only if claims are missing.

        It calls the store once for each plan. Claims of the next batch are allowed, because an old driver that is still running may have
        planned that batch.

        Raises: StateError if the store has claims of batches that this checkpoint does not know.
        """
        if offset.plan == self._checked_plan:
            return
        if self._store.has_later(offset.query, offset.batch + 1):
            raise StateError(
                f"{self._store.key} {self._store.place} lacks claims (what tasks have read) of batch {offset.batch} of this query "
                f"({offset.query}), but has claims of later batches, which this checkpoint does not know: another query "
                "runs with a copy of the checkpoint, or this is an old copy of it. Give a copy a new checkpointLocation, and start the "
                "query with the newest checkpoint; or set onMetadataLoss=REPLAY: nothing is lost, but all "
                "records of that batch come again, even if the sink has them"
            )
        self._checked_plan = offset.plan

    def write_token(self, offset: BatchOffset, *, is_there: bool = False) -> str:
        """Write the query's token into the store, unless the store has the token, and return it.

        - `is_there`: whether the offset's token has just been seen in the store. Then the store is not called.

        Raises: ConfigurationError if the store's location cannot hold claims.
        """
        if is_there:
            return offset.store_token
        if offset.query not in self._tokens:
            self._tokens[offset.query] = offset.store_token if self.was_planned_here(offset) else uuid.uuid4().hex[:12]
        token = self._tokens[offset.query]
        if not self._store.has_marker(offset.query, token):  # The token may expire in a bucket whose objects expire.
            self._store.write_marker(offset.query, token)
        return token


def claim_name(group: int) -> str:
    """Return the name, within its batch, of a task's claim (what it has read). `group`: the number of the task."""
    return f"group-{group:05d}"


def claim_store(options: SparkOptions) -> ReadClaimStore:
    """Return the store of a query's claims (what its tasks have read). Each process has one, and its client stays open."""
    loop = worker_loop()
    return loop.cached(
        ("claims", options.metadata_location, *sorted(options.properties.items())),
        lambda: read_claim_store_of(
            options.metadata_location, with_short_retries(options.properties), loop.run, options.metadata_key
        ),
    )


def batch_id(offset: BatchOffset) -> BatchId:
    """Return the id of an offset's batch, under which its tasks store their claims."""
    return BatchId(offset.query, offset.batch, offset.plan)


def _check_version(version: object) -> None:
    if version != VERSION:
        raise StateError(
            f"metadataLocation has a claim (what a task has read) of version {version}, and this release reads version {VERSION} only: "
            "use the release that wrote it, or start with a new checkpointLocation and a new metadataLocation"
        )


def _row_id(entry: list[Any] | None) -> RowId | None:
    return None if entry is None else (str(entry[0]), int(entry[1]))
