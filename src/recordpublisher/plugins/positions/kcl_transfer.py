"""Moves positions between a job and a lease table of the KCL: reads both sides twice, plans, then writes.

A plan alone is the dry run. Pure functions convert the KCL's leases to the shard states of a job, and back.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from recordpublisher.fetcher.checkpoints.shard_starts import Starts, initial_states, shards_no_longer_listed
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.shards.lineage import Children
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis.ports import ListingPort
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION, LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.safe_text import counted, few_of
from recordpublisher.publishers.shards import HashRange, Shard, stream_name

from ..stores.aws_store_calls import AwsStoreCalls, ConditionFailedError, NotFoundError
from ..stores.dynamodb_store import create_table
from .job_positions import ImportedPosition, JobPositions, imported_states

SHARD_END, TRIM_HORIZON, LATEST, AT_TIMESTAMP = "SHARD_END", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"
NO_SEQUENCE_NUMBER = (SHARD_END, TRIM_HORIZON, LATEST, AT_TIMESTAMP)
WHOLE_AGGREGATE = 2**31 - 1
"""The sub-sequence number that stands for a whole record. It is higher than the number of any sub-record.

The KCL numbers sub-records from 0, and a record that is not an aggregate has 0. The KCL reads from the record of its checkpoint on, and
drops records that are not above the checkpoint, so 0 would repeat the other sub-records of an aggregate.
"""
_STOP_FIRST = "Stop it first. To continue nevertheless, add --force"


@dataclass(frozen=True)
class KclTransfer:
    """Transfers positions between a job and a lease table of the KCL.

    - `streams`: the job's streams, by name or ARN.
    - `watch_seconds`: pause between two reads of the positions. If they differ, the job or the KCL is running.
    - `is_forced`: whether to replace positions, and to export even if the KCL would then read records again or leave records out.
    """

    job: JobPositions
    table: KclLeaseTable
    lister: TransferLister
    streams: Sequence[str]
    properties: Properties
    watch_seconds: float
    is_forced: bool = False
    pause: Pause = asyncio.sleep

    async def plan_import(self) -> list[ImportedPosition]:
        """Return the positions from which the job would start. Raises: StateError if the KCL is running, or if the job has positions."""
        self.job.check_writable()
        (await self.job.load()).check_unused(self.is_forced)
        before, heartbeats = await self._read_leases(), await self._pause_for_heartbeats()
        leases = await self._read_leases()
        self._check_stopped(before, leases)
        await self._check_heartbeats(heartbeats)
        return await self._imported(leases)

    async def apply_import(self, plan: Sequence[ImportedPosition]) -> None:
        """Store the planned positions."""
        await self.job.store(imported_states(plan))

    async def plan_export(self) -> list[ExportedLease]:
        """Return the leases that would be written.

        Raises: StateError in these cases:

        - The job has no positions.
        - The job or the KCL is running.
        - A lease is ahead of the job.
        - The job has not finished a shard that the listing lacks, or that only its archive has.
        """
        before, leases_before = (await self.job.load()).merged, await self.table.read() or []
        if not before.shards:
            raise StateError(f"the job has stored no positions in {self.job.place}: are these its properties?")
        heartbeats = await self._pause_for_heartbeats()
        restored, leases = (await self.job.load()).merged, await self.table.read() or []
        self._check_stopped(leases_before, leases)
        await self._check_heartbeats(heartbeats)
        if restored != before and not self.is_forced:
            raise StateError(f"the job is running: its positions have changed. {_STOP_FIRST}")
        listed = [shard for stream in self.streams for shard in await self._list(stream)]
        names = [*map(stream_name, self.streams)]
        if (lacking := shards_no_longer_listed(listed, restored, names)) and not self.is_forced:
            raise StateError(
                f"the stream's listing lacks {few_of(lacking)}, which the job has not read to the end, so {self.table.place} would get no "
                "lease for them. Try again later. If their records are past retention, add --force"
            )
        live = {shard.key for stream in self.streams for shard in await self._list_live(stream)}
        plan = leases_from_states(restored, listed, initial_position(self.properties), leases, names)
        gone = {exported.shard: exported for exported in plan if exported.shard not in live}
        unread = [shard for shard, exported in gone.items() if not exported.written.has_ended]
        if unread and not self.is_forced:
            raise StateError(
                f"the job has not read the archived {few_of(unread)} to the end, and the stream no longer has them, so the KCL cannot "
                "read them. Let the job read them first. To leave their records out, add --force"
            )
        # The KCL needs no lease of a shard that no longer exists. An open lease that its table has must still be closed.
        plan = [exported for exported in plan if exported.shard in live or exported.replaced is not None]
        ahead = [exported.shard for exported in plan if exported.goes_back]
        if ahead and not self.is_forced:
            raise StateError(
                f"{self.table.place} is ahead of the job for {few_of(ahead)}: if the job's positions were written there, the KCL would "
                "read records again. To write them nevertheless, add --force"
            )
        return plan

    async def apply_export(self, plan: Sequence[ExportedLease]) -> None:
        """Write the planned leases, and create the table if there is none. Raises: StateError if a row was changed since the plan."""
        if await self.table.read() is None:
            await self.table.create()
        for exported in plan:
            await self.table.write(exported.written, exported.replaced)

    async def _imported(self, leases: Sequence[KclLease]) -> list[ImportedPosition]:
        start = initial_position(self.properties)
        by_stream = leases_by_stream(leases, [*map(stream_name, self.streams)], self.table.place)
        plan: list[ImportedPosition] = []
        for stream in self.streams:
            name, listed = stream_name(stream), await self._list(stream)
            now_ms = await self._retried(functools.partial(self.lister.server_time_ms, stream))
            begin = start if start.is_tip else start.pinned_at(now_ms)
            plan += positions_from_leases(by_stream[name], listed, name, begin, now_ms)
        return plan

    async def _read_leases(self) -> list[KclLease]:
        leases = await self.table.read()
        if not leases:
            there = "there is no such table" if leases is None else "the table has no leases"
            raise StateError(f"{self.table.place} cannot be imported: {there}")
        return leases

    def _check_stopped(self, before: Sequence[KclLease], after: Sequence[KclLease]) -> None:
        renewed = renewed_leases(before, after)
        if renewed and not self.is_forced:
            owners = few_of(sorted({lease.owner or "no worker" for lease in renewed}))
            raise StateError(
                f"a worker of the KCL is alive: {counted(len(renewed), 'lease')} of {self.table.place} changed within "
                f"{self.watch_seconds:g} s, owned by {owners}. {_STOP_FIRST}"
            )

    async def _pause_for_heartbeats(self) -> Mapping[str, int]:
        """Read the heartbeats of the group's workers, then pause until each running worker must have sent another one.

        Return the heartbeats that were read before the pause: the number of the last heartbeat of each worker. On a quiet stream only
        heartbeats show that a group is running.
        """
        before = await self.job.heartbeats()
        await self.pause(max(self.watch_seconds, HEARTBEATS_WATCHED * self.job.heartbeat_seconds if before else 0.0))
        return before

    async def _check_heartbeats(self, before: Mapping[str, int]) -> None:
        after = await self.job.heartbeats()
        live = sorted(worker for worker, beat in after.items() if before.get(worker) != beat)
        if live and not self.is_forced:
            raise StateError(f"the job is running: worker {few_of(live)} of its group sends heartbeats. {_STOP_FIRST}")

    async def _list(self, stream: str) -> list[Shard]:
        return await self._retried(lambda: self.lister.list_shards(stream))

    async def _list_live(self, stream: str) -> list[Shard]:
        return await self._retried(lambda: self.lister.list_live_shards(stream))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, LIST_SHARDS_RETRIES.policy(self.properties))


class TransferLister(ListingPort, Protocol):
    """Lists the shards that the job reads, and the shards that the stream itself still has."""

    async def list_live_shards(self, stream: str) -> list[Shard]:
        """Return the shards of the stream, without those that only an archive has."""


@dataclass(frozen=True, slots=True)
class KclLease:
    """The lease of one shard.

    - `checkpoint`: the last processed sequence number, or SHARD_END, TRIM_HORIZON, LATEST or AT_TIMESTAMP.
    - `sub_sequence`: the last processed sub-record of that record.
    - `counter`: a number that a running worker increases every few seconds. `owner`: the worker that has the lease.
    - `stream_id`: `account:stream:epoch` in a table of several streams. None if the table does not name the stream.
    - `has_pending`: whether a checkpoint was prepared and never completed. The KCL reads from the completed checkpoint.
    """

    shard_id: str
    checkpoint: str
    sub_sequence: int = 0
    counter: int = 0
    owner: str | None = None
    stream_id: str | None = None
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    hash_range: HashRange | None = None
    has_pending: bool = False

    @property
    def key(self) -> str:
        """The primary key of the row."""
        return self.shard_id if self.stream_id is None else f"{self.stream_id}:{self.shard_id}"

    @property
    def stream(self) -> str | None:
        """Name of the stream; None if the table does not name it."""
        return None if self.stream_id is None else self.stream_id.split(":")[1]

    @property
    def has_ended(self) -> bool:
        """Whether the shard was read to its end."""
        return self.checkpoint == SHARD_END

    @property
    def progress(self) -> tuple[int, int, int]:
        """Sort key of the progress. Start positions are lowest, then sequence numbers with their sub-sequence numbers, then the end."""
        if self.checkpoint in NO_SEQUENCE_NUMBER:
            return (2 if self.has_ended else 0, 0, 0)
        return (1, int(self.checkpoint), self.sub_sequence)

    def __str__(self) -> str:
        return self.checkpoint if self.checkpoint in NO_SEQUENCE_NUMBER else f"{self.checkpoint}/{self.sub_sequence}"


def check_hash_range(lease: KclLease, shard: Shard) -> None:
    """Check that a lease and its shard have the same hash range. Raises: StateError if not, because the lease is of another stream."""
    if lease.hash_range is not None and lease.hash_range != shard.hash_range:
        raise StateError(
            f"the lease {lease.key} has the hash keys {lease.hash_range.start} to {lease.hash_range.end}, but the shard of {shard.stream} "
            f"has {shard.hash_range.start} to {shard.hash_range.end}: the table belongs to another stream"
        )


def lease_from_item(item: Mapping[str, Any], place: str) -> KclLease | None:
    """Return the lease in a row, or None if the row is something else. KCL 3.5 and later keep other entities in the same table.

    Raises: StateError if the row is not a valid lease.
    """
    if "S" in item.get("entityType", {}) and item["entityType"]["S"] != "LEASE":
        return None
    row = _text(item, "leaseKey")
    if row is not None and "checkpoint" not in item and "shardId-" not in row:
        return None
    try:
        key, checkpoint = item["leaseKey"]["S"], item["checkpoint"]["S"]
        stream_id, shard_id = _text(item, "streamName"), _text(item, "shardId") or key
        start, end = _text(item, "startingHashKey"), _text(item, "endingHashKey")
        lease = KclLease(
            shard_id=shard_id,
            checkpoint=checkpoint,
            sub_sequence=int(item.get("checkpointSubSequenceNumber", {"N": "0"})["N"]),
            counter=int(item["leaseCounter"]["N"]),
            owner=_text(item, "leaseOwner"),
            stream_id=stream_id,
            parents=tuple(sorted(item.get("parentShardId", {"SS": []})["SS"])),
            children=tuple(sorted(item.get("childShardIds", {"SS": []})["SS"])),
            hash_range=HashRange.parse(start, end) if start and end else None,
            has_pending="pendingCheckpoint" in item,
        )
    except (KeyError, TypeError, ValueError) as error:
        remedy = "Delete the row, or let the KCL write it again, then import"
        raise StateError(
            f"the row {row} of {place} is not a lease of the KCL, because a field is missing or not valid ({error!r}): "
            f"{str(item)[:300]}. {remedy}"
        ) from error
    if lease.key != key or (stream_id is not None and stream_id.count(":") != 2):
        raise StateError(f"a row of {place} is not a lease of the KCL: key {key!r}, stream {stream_id!r}")
    if checkpoint not in NO_SEQUENCE_NUMBER and not (checkpoint.isascii() and checkpoint.isdecimal()):
        raise StateError(
            f"the lease {key} in {place} has the checkpoint {checkpoint!r}, which is not a sequence number"
        )
    return lease


def lease_to_item(lease: KclLease) -> dict[str, Any]:
    """Return the row of a lease. It has no owner, so that the next worker takes it."""
    item: dict[str, Any] = {
        "leaseKey": {"S": lease.key},
        "leaseCounter": {"N": str(lease.counter)},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": lease.checkpoint},
        "checkpointSubSequenceNumber": {"N": str(lease.sub_sequence)},
        "entityType": {"S": "LEASE"},
    }
    if lease.parents:
        item["parentShardId"] = {"SS": list(lease.parents)}
    if lease.children:
        item["childShardIds"] = {"SS": list(lease.children)}
    if lease.hash_range is not None:
        item["startingHashKey"] = {"S": str(lease.hash_range.start)}
        item["endingHashKey"] = {"S": str(lease.hash_range.end)}
    if lease.stream_id is not None:
        item |= {"streamName": {"S": lease.stream_id}, "shardId": {"S": lease.shard_id}}
    return item


def _text(item: Mapping[str, Any], name: str) -> str | None:
    found = item.get(name, {}).get("S")
    return None if found is None else str(found)


class KclLeaseTable:
    """Owns the client of a lease table. The KCL names the table like its application, unless it is configured otherwise.

    Every method raises: StoreUnavailableError if DynamoDB does not answer; StateError for other failures.

    Raises: ConfigurationError if credentials or region are invalid.
    """

    def __init__(self, name: str, properties: Properties) -> None:
        self.place = f"kcl:{name}"
        self._name = name
        self._service = AwsStoreCalls("dynamodb", self.place, properties)

    async def read(self) -> list[KclLease] | None:
        """Return every lease, sorted by key, or None if there is no table. Rows that are not leases are ignored."""
        leases: list[KclLease] = []
        try:
            async for items in self._service.pages("Scan", _parse_page, TableName=self._name, ConsistentRead=True):
                parsed = (lease_from_item(item, self.place) for item in items)
                leases += (lease for lease in parsed if lease is not None)
        except NotFoundError:
            return None
        return sorted(leases, key=lambda lease: lease.key)

    async def write(self, lease: KclLease, seen: KclLease | None) -> None:
        """Write a lease without an owner. It replaces the lease `seen`, or is a new one if `seen` is None.

        Its counter is that of `seen` plus one, so a worker that still has the lease can neither renew it nor store a checkpoint.

        Raises: StateError if the row has changed.
        """
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(leaseKey)"}
        if seen is not None:
            condition = {
                "ConditionExpression": "leaseCounter = :seen",
                "ExpressionAttributeValues": {":seen": {"N": str(seen.counter)}},
            }
        written = lease_to_item(replace(lease, counter=0 if seen is None else seen.counter + 1))
        try:
            await self._service.call("PutItem", lambda _: None, TableName=self._name, Item=written, **condition)
        except ConditionFailedError as error:
            # If the row has these values, the SDK's retry met its own first attempt, which had succeeded.
            if not await self._has(written):
                raise StateError(
                    f"the lease {lease.key} in {self.place} was changed in the meantime; is a worker of the KCL running?"
                ) from error

    async def create(self) -> None:
        """Create the table, and wait until it is ACTIVE. The KCL adds an index itself when it starts."""
        await create_table(self._service, self._name, {"leaseKey": "HASH"})

    async def close(self) -> None:
        """Close the client."""
        await self._service.close()

    async def _has(self, written: dict[str, Any]) -> bool:
        where = {"TableName": self._name, "Key": {"leaseKey": written["leaseKey"]}, "ConsistentRead": True}
        stored: dict[str, Any] = await self._service.call("GetItem", lambda response: response.get("Item", {}), **where)
        return bool(stored) and lease_from_item(stored, self.place) == lease_from_item(written, self.place)


def _parse_page(response: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    last = response.get("LastEvaluatedKey")
    return response["Items"], {"ExclusiveStartKey": last} if last else None


NOT_KEPT_BY_KCL = (
    "The KCL does not keep watermarks, arrival times and idle shards: going back, the job learns them again."
)


@dataclass(frozen=True, slots=True)
class ExportedLease:
    """The lease to write for one shard, and the lease that it replaces."""

    shard: str
    written: KclLease
    replaced: KclLease | None = None
    note: str = ""

    @property
    def goes_back(self) -> bool:
        """Whether the replaced lease is ahead of the job. If so, the KCL would read records again."""
        return self.replaced is not None and self.replaced.progress > self.written.progress


def leases_from_states(
    restored: RestoredState,
    listed: Sequence[Shard],
    start: StartingPosition,
    rows: Sequence[KclLease],
    streams: Sequence[str],
) -> list[ExportedLease]:
    """Return the leases of listed shards that must be read, and of shards that have ended in the job but not in the table.

    - `restored`: the stored positions of the job.
    - `start`: the start position in the job's properties, for shards without a stored position.
    - `rows`: the leases that the table has.
    - `streams`: the names of the job's streams.

    Raises: StateError in these cases:

    - The rows are of another stream.
    - The job has several streams, and the rows do not name them.
    - The KCL cannot hold a position.
    """
    replaced = {row.key: row for row in rows}
    identifiers = _stream_identifiers(replaced.values(), streams)
    states = initial_states(listed, restored, Starts(start).with_stored_start(restored.pinned_ms))
    listed_children = Children(listed)
    exported = []
    for shard in listed:
        state = states[shard.key]
        if state.ended and shard.key not in restored.shards and not _is_open(rows, shard):
            continue  # This is an ancestor that ended long ago: the KCL has deleted its lease, or knows its end.
        checkpoint, sub_sequence = _checkpoint_of(shard.key, state)
        children = tuple(child.shard_id for child in listed_children.of(shard.key)) if state.ended else ()
        lease = KclLease(
            shard_id=shard.shard_id,
            checkpoint=checkpoint,
            sub_sequence=sub_sequence,
            stream_id=identifiers[shard.stream],
            parents=shard.parents,
            children=children,
            hash_range=shard.hash_range,
        )
        if lease.key in replaced:
            check_hash_range(replaced[lease.key], shard)
        exported.append(ExportedLease(shard.key, lease, replaced.get(lease.key), _note_of_export(state, checkpoint)))
    return sorted(exported, key=lambda lease: lease.shard)


def _is_open(rows: Iterable[KclLease], shard: Shard) -> bool:
    """Return whether the KCL would still read a shard that the job has finished. It would if its lease is not at the shard's end."""
    own = (row for row in rows if row.shard_id == shard.shard_id and row.stream in (None, shard.stream))
    return any(row.checkpoint != SHARD_END for row in own)


def _checkpoint_of(shard: str, state: ShardState) -> tuple[str, int]:
    if state.ended:
        return SHARD_END, 0
    if state.position is not None:
        sequence, part = state.position.sequence, state.position.sub_sequence
        return sequence, part if state.position.is_inside_aggregate else WHOLE_AGGREGATE
    if state.start.type.value not in NO_SEQUENCE_NUMBER:
        raise StateError(
            f"the job has read nothing of {shard} yet, and begins it at {state.start.type.value}, which a lease of the KCL cannot express. "
            "Let the job read a record of it first"
        )
    return state.start.type.value, 0


def _note_of_export(state: ShardState, checkpoint: str) -> str:
    if checkpoint != AT_TIMESTAMP:
        return ""
    time = iso_time(state.start.timestamp_ms or 0)
    return f"the time is not in the table: give the KCL the initial position {time}"


def _stream_identifiers(rows: Iterable[KclLease], streams: Sequence[str]) -> Mapping[str, str | None]:
    """Return `account:stream:epoch` of each stream, taken from the rows; None for the table of a single stream.

    Raises: StateError if the rows do not have exactly one identifier of each stream.
    """
    found: dict[str, set[str]] = {stream: set() for stream in streams}
    names_streams = False
    for row in rows:
        names_streams |= row.stream is not None
        if row.stream in found:
            found[row.stream].add(str(row.stream_id))
    if not names_streams and len(streams) == 1:
        return {streams[0]: None}
    for stream, identifiers in found.items():
        if len(identifiers) != 1:
            has = ", ".join(sorted(identifiers)) or "none"
            raise StateError(
                f"the KCL's identifier of {stream} (account:stream:epoch) is not known: the rows of the table must name "
                f"exactly one, and name {has}"
            )
    return {stream: identifiers.pop() for stream, identifiers in found.items()}


HEARTBEATS_WATCHED = 2
"""Number of heartbeat intervals between the two reads of heartbeats. It is above 1 because a heartbeat may be late."""
Pause = Callable[[float], Awaitable[None]]
T = TypeVar("T")


def renewed_leases(before: Sequence[KclLease], after: Sequence[KclLease]) -> list[KclLease]:
    """Return new leases, and leases whose counter or owner changed between two reads. They show that a worker is running."""
    known = {lease.key: (lease.counter, lease.owner) for lease in before}
    return [lease for lease in after if known.get(lease.key) != (lease.counter, lease.owner)]


# --- from the KCL's leases to the shard states of a job -------------------------------------------------------------------------------


def leases_by_stream(leases: Iterable[KclLease], streams: Sequence[str], place: str) -> dict[str, list[KclLease]]:
    """Return the leases of each of the job's streams. If the table names no stream, all its leases are of the job's one stream.

    Raises: StateError if a stream has no lease, or if the table has several streams of the same name.
    """
    leases = list(leases)
    unnamed = [lease for lease in leases if lease.stream is None]
    if unnamed and len(streams) > 1:
        raise StateError(
            f"the leases in {place} do not name their stream, so only a job of one stream can import them; this "
            f"job reads {', '.join(streams)}"
        )
    found = {stream: [*unnamed, *(lease for lease in leases if lease.stream == stream)] for stream in streams}
    for stream, own in found.items():
        if not own:
            raise StateError(f"{place} has no lease of {stream}: is it the table of another application?")
        identifiers = sorted({str(lease.stream_id) for lease in own})
        if len(identifiers) > 1:
            raise StateError(
                f"{place} has leases of several streams named {stream}: {', '.join(identifiers)}. Remove the "
                "leases of those that the job does not read"
            )
    return found


def positions_from_leases(
    leases: Sequence[KclLease], listed: Sequence[Shard], stream: str, start: StartingPosition, now_ms: int
) -> list[ImportedPosition]:
    """Return the position of every leased or listed shard of a stream.

    - `start`: the start position in the job's properties, for shards without a checkpoint.
    - `now_ms`: the service's time (epoch ms).

    Raises: StateError if the leases are of another stream; ConfigurationError if a lease begins at a time that the table does not hold.
    """
    shards = {shard.shard_id: shard for shard in listed}
    unfinished = {lease.shard_id for lease in leases if not lease.has_ended}
    imported = []
    for lease in leases:
        shard = shards.get(lease.shard_id)
        if shard is not None:
            check_hash_range(lease, shard)
        parents = lease.parents if shard is None else shard.parents
        state = _state_of(lease, parents, not unfinished.isdisjoint(parents), start, now_ms)
        note = _note_of_import(lease, shard is not None)
        imported.append(ImportedPosition(f"{stream}/{lease.shard_id}", str(lease), state, note))
    known = {position.shard: position.state for position in imported}
    for key, state in initial_states(listed, RestoredState(known), Starts(start)).items():
        if key not in known:
            note = "no lease: it ended before" if state.ended else "no lease: a new shard"
            imported.append(ImportedPosition(key, "-", state, note, is_stored=False))
    return sorted(imported, key=lambda position: position.shard)


def _state_of(
    lease: KclLease, parents: tuple[str, ...], is_waiting: bool, start: StartingPosition, now_ms: int
) -> ShardState:
    trim_horizon = StartingPosition.trim_horizon()
    if lease.has_ended:
        return ShardState(trim_horizon, ended=True, parents=parents)
    if lease.checkpoint == AT_TIMESTAMP and start.type is not PositionType.AT_TIMESTAMP:
        valid = "AT_TIMESTAMP, with the timestamp of the KCL's configuration"
        reason = f"the lease {lease.key} begins at a time, which the lease table does not hold"
        raise ConfigurationError(INITIAL_POSITION.key, start.type.value, valid, reason=reason)
    starts = {LATEST: StartingPosition.at_timestamp(now_ms), AT_TIMESTAMP: start}
    first = starts.get(lease.checkpoint, trim_horizon)
    if lease.progress[0] == 0:
        return ShardState(first, parents=parents, waiting=is_waiting)
    # Sub-sequence number 0 means a whole record, or the first sub-record of an aggregate. In both cases only that one was processed.
    is_whole = lease.sub_sequence >= WHOLE_AGGREGATE
    position = SequenceNumber(lease.checkpoint) if is_whole else SequenceNumber(lease.checkpoint, lease.sub_sequence)
    return ShardState(first, position, parents=parents)


def _note_of_import(lease: KclLease, is_listed: bool) -> str:
    notes = []
    if not is_listed and not lease.has_ended:
        notes.append("the stream no longer lists it: its unread records are lost")
    if lease.has_pending:
        notes.append("a prepared checkpoint was not completed: what follows the completed one is read again")
    if lease.checkpoint == LATEST:
        notes.append("nothing was checkpointed: what arrived before the import is not read")
    return "; ".join(notes)
