"""The offset of one micro-batch: everything the batch needs, self-contained, as JSON in Spark's offset log.

An offset describes the batch that it *ends* in Spark's words: where that batch starts in every shard, up to which event time it may
emit, and into how many tasks it is cut. Where it ended is known from its claims, and becomes part of the next offset.
Progress listeners find it as `query.lastProgress["sources"][0]["endOffset"]`; the fields are listed in docs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.fetcher.shards.shard_state import ShardState, start_from_json, start_to_json
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from .shard_claims import shard_from_json, shard_to_json

VERSION = 1
NOTHING = -(2**62)
"""A bound that no record is below: a batch that looks at the heads of the shards and emits nothing."""


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard in an offset.

    `state`: where the batch starts. `records`: emitted so far; `last_records`: by the batch before. `tip_ms`: when the
    shard was last seen at its tip. `silent_ms`: evidence of
    silence (W3), `idle` the verdict. `head`: watermark of a record that waits above the bound (W1). `held_ms`, `held_batches`: how
    long alignment held the shard so far. `behind_ms`: MillisBehindLatest of the last read. `ended_ms`: when the end was seen.
    `done`: not read again by this AvailableNow run. `fruitless`: how many windows in a row ended without progress and short of the tip.
    """

    shard: Shard
    state: ShardState
    records: int = 0
    last_records: int = 0
    at_tip: bool = False
    tip_ms: int | None = None
    silent_ms: int = 0
    idle: bool = False
    head: int | None = None
    held_ms: int = 0
    held_batches: int = 0
    behind_ms: int | None = None
    ended_ms: int | None = None
    done: bool = False
    fruitless: int = 0

    @property
    def key(self) -> str:
        """`stream/shard-id`."""
        return self.shard.key

    @property
    def level(self) -> int | None:
        """What the shard counts with: the head of its queue when something waits, otherwise what was emitted (W1)."""
        return self.state.watermark if self.head is None else self.head

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is stored: the way of a frozen dataclass takes five times as long, and tasks may carry a thousand."""
        return ShardEntry.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Any]:
        """A plain dict without empty entries."""
        entries = {
            **shard_to_json(self.shard),
            "at": {name: value for name, value in self.state.to_json().items() if name != "parents"},
            "records": self.records,
            "lastRecords": self.last_records,
            "atTip": self.at_tip,
            "tipMs": self.tip_ms,
            "silentMs": self.silent_ms,
            "idle": self.idle,
            "head": self.head,
            "heldMs": self.held_ms,
            "heldBatches": self.held_batches,
            "millisBehindLatest": self.behind_ms,
            "endedMs": self.ended_ms,
            "done": self.done,
            "fruitless": self.fruitless,
        }
        # zero is said by absence, except where absence means "unknown"
        kept = {"head", "millisBehindLatest", "endedMs", "tipMs"}
        return {name: value for name, value in entries.items() if value or (name in kept and value is not None)}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardEntry:
        """The inverse of `to_json`."""
        shard = shard_from_json(entries)
        return cls(
            shard=shard,
            state=ShardState.from_json({**entries["at"], "parents": shard.parents}),
            records=entries.get("records", 0),
            last_records=entries.get("lastRecords", 0),
            at_tip=entries.get("atTip", False),
            tip_ms=entries.get("tipMs"),
            silent_ms=entries.get("silentMs", 0),
            idle=entries.get("idle", False),
            head=entries.get("head"),
            held_ms=entries.get("heldMs", 0),
            held_batches=entries.get("heldBatches", 0),
            behind_ms=entries.get("millisBehindLatest"),
            ended_ms=entries.get("endedMs"),
            done=entries.get("done", False),
            fruitless=entries.get("fruitless", 0),
        )


@dataclass(frozen=True, slots=True)
class Offset:
    """The plan of batch number `batch` of the query `query`.

    `plan` is random for each planning: claims of another plan of the same number are not obeyed. `planned_ms`: driver's clock.
    `tasks`: into how many tasks the runnable shards are dealt. `limit`: records of the batch at most. `global_watermark`, `bound`:
    epoch ms; a bound of None means that alignment is off, `NOTHING` that heads are looked at. `records`: emitted by all batches before,
    of shards that have ended and gone too. `start`: where the job started, its LATEST pinned; a stream that is added later starts there too
    (S5). `store`: a token that was in the claim store when the batch was planned; a store without it has lost the batch's claims.
    """

    query: str
    plan: str
    batch: int
    planned_ms: int
    shards: Mapping[str, ShardEntry]
    tasks: int = 1
    limit: int | None = None
    global_watermark: int | None = None
    bound: int | None = None
    records: int = 0
    start: StartingPosition = field(default_factory=StartingPosition.trim_horizon)
    store: str = ""

    def to_json(self) -> dict[str, Any]:
        """A plain dict; equal offsets give equal JSON text."""
        entries = {
            "v": VERSION,
            "query": self.query,
            "plan": self.plan,
            "batch": self.batch,
            "planned": self.planned_ms,
            "tasks": self.tasks,
            "limit": self.limit,
            "globalWatermark": self.global_watermark,
            "bound": self.bound,
            "records": self.records,
            "start": start_to_json(self.start),
            "store": self.store,
            "shards": {key: entry.to_json() for key, entry in self.shards.items()},
        }
        return {name: value for name, value in entries.items() if value is not None}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any] | str) -> Offset:
        """The inverse of `to_json`. Raises: StateError when it does not fit."""
        try:
            plain = json.loads(entries) if isinstance(entries, str) else entries
            return cls._from_plain(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"a Spark offset cannot be read: {str(entries)[:200]}: {error}") from error

    @classmethod
    def _from_plain(cls, plain: Mapping[str, Any]) -> Offset:
        if "spoolVersion" in plain:
            raise StateError(
                "the checkpoint is of a query in mode CONTINUOUS, and this one is in mode BATCH: begin with a new "
                "checkpointLocation and a new metadataLocation"
            )
        if plain["v"] != VERSION:
            raise StateError(f"a Spark offset has version {plain['v']}, this release reads version {VERSION}")
        return cls(
            query=plain["query"],
            plan=plain["plan"],
            batch=plain["batch"],
            planned_ms=plain["planned"],
            tasks=plain["tasks"],
            limit=plain.get("limit"),
            global_watermark=plain.get("globalWatermark"),
            bound=plain.get("bound"),
            records=plain.get("records", 0),
            start=start_from_json(plain["start"]),
            store=plain["store"],
            shards={key: ShardEntry.from_json(entry) for key, entry in plain["shards"].items()},
        )
