"""The offset of one micro-batch, as JSON in Spark's offset log.

An offset is the plan of its batch: where the batch starts in every shard, which task reads the shard, and up to which event time it may
emit. For Spark the offset is the *end* of that batch. The real end of the batch is in its claims (what its tasks have read). The next
offset is computed from them. A query shows the offset as `query.lastProgress["sources"][0]["endOffset"]`; the documentation lists its
fields.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.fetcher.global_watermark_rules import shard_watermark
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation, Silence
from recordpublisher.fetcher.shards.shard_state import ShardState, start_from_json, start_to_json
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, shard_to_json, stored_shard_from

VERSION = 3
"""Format version of an offset. Offsets of earlier versions are refused."""
EMIT_NOTHING = -(2**62)
"""An emit limit below every event time. With it, a batch reads the first watermark of each shard and emits nothing."""

UNLISTED_PLAN = "unlisted"
"""The plan id of an offset whose shards are not listed yet."""


@dataclass(frozen=True, slots=True)
class BatchOffset:
    """The plan of batch number `batch` of the query `query`.

    - `plan`: a random id, new for each plan. Claims of another plan with the same batch number are ignored.
    - `after`: the `plan` of the batch before.
    - `planned_ms`: when the batch was planned, by the driver's clock (epoch ms).
    - `limit`: the most records of the batch.
    - `global_watermark`: the lowest watermark of the active shards (epoch ms).
    - `emit_limit`: the highest event time that the batch emits (epoch ms). It is None if alignment is off, or `EMIT_NOTHING`.
    - `records`, `bytes`: emitted by all earlier batches, including shards that are no longer in the offset.
    - `skipped`: records that these batches could not use and left out.
    - `initial_start`: where the job started, with LATEST as the time of the start. A stream that is added later has the same start.
    - `store_token`: the token in the claim store when the batch was planned. A store without it has lost the batch's claims.
    - `waits`: how many batches without tasks followed, while the query waited for a service or showed its figures.
    """

    query: str
    plan: str
    batch: int
    planned_ms: int
    shards: Mapping[str, ShardOffset]
    after: str = ""
    limit: int | None = None
    global_watermark: int | None = None
    emit_limit: int | None = None
    records: int = 0
    bytes: int = 0
    skipped: int = 0
    initial_start: StartingPosition = field(default_factory=StartingPosition.trim_horizon)
    store_token: str = ""
    waits: int = 0

    @classmethod
    def unlisted(cls, now_ms: int) -> BatchOffset:
        """Return the first offset of a query whose shards cannot be listed now. It has no shards.

        - `now_ms`: when the query began (epoch ms). When the shards can be listed, the start of the query is computed for this time.
        """
        return cls(random_id(), UNLISTED_PLAN, 0, now_ms, {})

    @property
    def is_unlisted(self) -> bool:
        """Whether the query's shards could not be listed yet."""
        return self.plan == UNLISTED_PLAN

    def tasks(self) -> list[list[ShardOffset]]:
        """Return the shards of each task, as planned. No task is empty.

        In each batch a task begins with another one of its shards, because its limit of bytes may be reached before every shard was read.
        """
        groups: dict[int, list[ShardOffset]] = {}
        for _, entry in sorted(self.shards.items()):
            if entry.task is not None:
                groups.setdefault(entry.task, []).append(entry)
        return [_rotated(groups[task], self.batch) for task in sorted(groups)]

    def follows(self, previous: BatchOffset) -> bool:
        """Return whether this batch was planned after `previous`, or is `previous` itself because nothing was planned since.

        The first batch follows any initial offset, because every process computes the start of a new query again.
        """
        is_first = previous.batch == 0 and self.batch <= 1
        return is_first or previous.plan in (self.plan, self.after)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as a dict of plain values, for JSON. Equal offsets give equal JSON text."""
        entries = {
            "v": VERSION,
            "query": self.query,
            "plan": self.plan,
            "batch": self.batch,
            "plannedMs": self.planned_ms,
            "after": self.after or None,
            "limit": self.limit,
            "globalWatermark": self.global_watermark,
            "emitLimit": self.emit_limit,
            "records": self.records,
            "bytes": self.bytes or None,
            "skipped": self.skipped or None,
            "start": start_to_json(self.initial_start),
            "storeToken": self.store_token,
            "waits": self.waits or None,
            "shards": {key: entry.to_json() for key, entry in self.shards.items()},
        }
        return {name: value for name, value in entries.items() if value is not None}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any] | str) -> BatchOffset:
        """Return the offset that `to_json` has made into `entries`. Raises: StateError if `entries` is something else."""
        try:
            plain = json.loads(entries) if isinstance(entries, str) else entries
            return cls._from_plain(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"an offset of the checkpoint cannot be read ({error}): {str(entries)[:200]}; is it a checkpoint of this source?"
            ) from error

    @classmethod
    def _from_plain(cls, plain: Mapping[str, Any]) -> BatchOffset:
        if plain["v"] != VERSION:
            raise StateError(
                f"the checkpoint has a Spark offset of version {plain['v']}, and this release reads version {VERSION} only: "
                "use the release that wrote it, or start with a new checkpointLocation and a new metadataLocation"
            )
        return cls(
            query=plain["query"],
            plan=plain["plan"],
            batch=plain["batch"],
            planned_ms=plain["plannedMs"],
            after=plain.get("after", ""),
            limit=plain.get("limit"),
            global_watermark=plain.get("globalWatermark"),
            emit_limit=plain.get("emitLimit"),
            records=plain.get("records", 0),
            bytes=plain.get("bytes", 0),
            skipped=plain.get("skipped", 0),
            initial_start=start_from_json(plain["start"]),
            store_token=plain["storeToken"],
            waits=plain.get("waits", 0),
            shards={key: ShardOffset.from_json(entry) for key, entry in plain["shards"].items()},
        )


@dataclass(frozen=True, slots=True)
class HeldSoFar:
    """How long watermark alignment has kept a shard from being read: for `ms` milliseconds, in `batches` batches."""

    ms: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class ShardOffset:
    """One shard in an offset.

    - `state`: where the batch starts.
    - `task`: the number of the task that reads the shard, or None if the batch does not read it.
    - `seen`: the observations of the last read.
    - `silence`: how long the shard was silent.
    - `held`: how long alignment has kept the shard from being read.
    - `idle`: whether the shard was silent for so long that the global watermark does not wait for it.
    - `records`, `last_records`: records emitted so far, and by the batch before.
    - `ended_ms`: when the end of the shard was seen (epoch ms).
    - `done`: whether this AvailableNow run has finished the shard.
    - `empty_windows`: how many reads in a row ended without progress and before the tip.
    """

    shard: Shard
    state: ShardState
    task: int | None = None
    seen: ShardObservation = ShardObservation()  # noqa: RUF009 - is frozen
    silence: Silence = Silence()  # noqa: RUF009 - is frozen
    held: HeldSoFar = HeldSoFar()
    idle: bool = False
    records: int = 0
    last_records: int = 0
    ended_ms: int | None = None
    done: bool = False
    empty_windows: int = 0

    @property
    def key(self) -> str:
        """Key of the shard: `stream/shard-id`."""
        return self.shard.key

    @property
    def alignment_watermark(self) -> int | None:
        """The watermark of this shard from which the global watermark is computed, or None if it is not known."""
        return shard_watermark(self.seen.next_watermark, self.state.watermark)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as JSON. Pickling a frozen dataclass would take five times as long, and tasks may carry a thousand of them."""
        return ShardOffset.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Any]:
        """Return the shard as a dict of plain values, for JSON. Empty values are left out."""
        entries = {
            **shard_to_json(self.shard),
            "state": {name: value for name, value in self.state.to_json().items() if name != "parents"},
            "task": self.task,
            "seen": self.seen.to_json() or None,
            "silence": _without_zeros({"ms": self.silence.ms, "tipMs": self.silence.tip_ms}),
            "held": _without_zeros({"ms": self.held.ms, "batches": self.held.batches}),
            "idle": self.idle or None,
            "records": self.records or None,
            "lastRecords": self.last_records or None,
            "endedMs": self.ended_ms,
            "done": self.done or None,
            "emptyWindows": self.empty_windows or None,
        }
        return {name: value for name, value in entries.items() if value is not None}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardOffset:
        """Return the shard that `to_json` has made into `entries`."""
        shard = stored_shard_from(entries)
        silence, held = entries.get("silence", {}), entries.get("held", {})
        return cls(
            shard=shard,
            state=ShardState.from_json({**entries["state"], "parents": shard.parents}),
            task=entries.get("task"),
            seen=ShardObservation.from_json(entries.get("seen", {})),
            silence=Silence(silence.get("ms", 0), silence.get("tipMs")),
            held=HeldSoFar(held.get("ms", 0), held.get("batches", 0)),
            idle=entries.get("idle", False),
            records=entries.get("records", 0),
            last_records=entries.get("lastRecords", 0),
            ended_ms=entries.get("endedMs"),
            done=entries.get("done", False),
            empty_windows=entries.get("emptyWindows", 0),
        )


def random_id() -> str:
    """Return a new id of a query or a plan."""
    return uuid.uuid4().hex[:12]


def _without_zeros(entries: Mapping[str, int | None]) -> dict[str, int] | None:
    return {name: value for name, value in entries.items() if value} or None


def _rotated(group: list[ShardOffset], batch: int) -> list[ShardOffset]:
    first = batch % len(group)
    return group[first:] + group[:first]
