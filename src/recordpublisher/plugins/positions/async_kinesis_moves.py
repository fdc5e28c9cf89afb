"""From the checkpoints of async-kinesis to the shard states of a job, and back: nothing is read twice or skipped. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from recordpublisher.fetcher.checkpoints.restore import initial_states
from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard

from .async_kinesis_checkpoints import TTL_HOURS, ShardCheckpoint
from .plans import ExportedRow, ImportedPosition

NOT_HELD = (
    "async-kinesis does not keep the end of a shard, watermarks, arrival times and idle shards. DynamoDB deletes each row "
    f"{TTL_HOURS} hours from now, unless a consumer has renewed it: start it before then."
)


def positions_from_checkpoints(
    rows: Sequence[ShardCheckpoint], listed: Sequence[Shard], stream: str, start: StartingPosition, now_ms: int
) -> list[ImportedPosition]:
    """The position of every shard of the stream. `start` is where the job's properties begin, which must be the `iterator_type`.

    A row does not say whether its shard was read to its end: what is left of it is read, which may be nothing. Raises: StateError when
    the stream lists none of the shards.
    """
    shards = {shard.shard_id: shard for shard in listed}
    if not any(row.shard_id in shards for row in rows):
        raise StateError(f"{stream} has none of the shards of the table: it belongs to another stream")
    imported = []
    for row in rows:
        key = f"{stream}/{row.shard_id}"
        if row.shard_id in shards:
            state, note = _state_of(row, shards[row.shard_id], shards, start, now_ms)
            imported.append(ImportedPosition(key, str(row), state, note))
        else:
            note = "not taken over, the stream does not list it any more: what was unread is lost"
            gone = ShardState(StartingPosition.trim_horizon(), ended=True)
            imported.append(ImportedPosition(key, str(row), gone, note, is_stored=False))
    known = {position.shard: position.state for position in imported if position.is_stored}
    for key, state in initial_states(listed, RestoredState(known), start).items():
        if key not in known:
            note = "no row: it ended before, as a later shard has begun" if state.ended else "no row: a new shard"
            imported.append(ImportedPosition(key, "-", state, note, is_stored=False))
    return sorted(imported, key=lambda position: position.shard)


def checkpoints_from_states(
    restored: RestoredState,
    listed: Sequence[Shard],
    start: StartingPosition,
    rows: Iterable[ShardCheckpoint],
    empty: Collection[str],
) -> list[ExportedRow[ShardCheckpoint]]:
    """The checkpoint of each listed shard. `empty`: the shards (`Shard.key`) that have no records now.

    Raises: StateError for a position that async-kinesis cannot hold: inside an aggregate, or the end of a shard whose last sequence number
    is not known.
    """
    replaced = {row.shard_id: row for row in rows}
    if start.type is PositionType.LATEST and restored.pinned_ms is not None:
        start = StartingPosition.at_timestamp(restored.pinned_ms)
    states = initial_states(listed, restored, start)
    exported = []
    for shard in listed:
        state = states[shard.key]
        if state.position is not None and state.position.is_inside_aggregate:
            raise StateError(
                f"the job has stopped inside an aggregate, {shard.key} after {state.position}, which async-kinesis cannot hold: "
                "start the job again, and stop it at another record"
            )
        if state.ended and state.position is None and shard.key not in empty:
            raise StateError(
                f"{shard.key} was read to its end, and the job does not know its last sequence number: async-kinesis has no mark for the "
                "end, and would read the shard again"
            )
        sequence = None if state.position is None else state.position.sequence
        checkpoint = ShardCheckpoint(shard.shard_id, sequence)
        note = "" if sequence is not None or state.ended else _start_note(state.start)
        exported.append(ExportedRow(shard.key, checkpoint, replaced.get(shard.shard_id), note))
    return sorted(exported, key=lambda each: each.shard)


def ends_without_position(restored: RestoredState, listed: Sequence[Shard], start: StartingPosition) -> list[Shard]:
    """The shards that were read to their end without a known sequence number: Kinesis is asked whether they have records."""
    states = initial_states(listed, restored, start)
    return [shard for shard in listed if states[shard.key].ended and states[shard.key].position is None]


def _state_of(
    row: ShardCheckpoint, shard: Shard, shards: Collection[str], start: StartingPosition, now_ms: int
) -> tuple[ShardState, str]:
    owner = (
        ""
        if row.owner is None
        else f"{row.owner} was not closed: what it handled after its last checkpoint is read again"
    )
    if row.sequence is not None:
        position = SequenceNumber(row.sequence)
        return ShardState(StartingPosition.trim_horizon(), position, parents=shard.parents), owner
    if any(parent in shards for parent in shard.parents):
        return ShardState(StartingPosition.trim_horizon(), parents=shard.parents, waiting=True), owner
    if start.type is PositionType.LATEST:
        note = "nothing was checkpointed: what arrived before the import is not read"
        return ShardState(StartingPosition.at_timestamp(now_ms), parents=shard.parents), note
    return ShardState(start, parents=shard.parents), owner


def _start_note(start: StartingPosition) -> str:
    if start.timestamp_ms is None:
        return f'give the consumer iterator_type="{start.type.value}"'
    moment = datetime.fromtimestamp(start.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f'give the consumer iterator_type="AT_TIMESTAMP" and the timestamp {moment}'
