"""Converts the shard states of a job to the KCL's leases, and finds states that leases cannot hold. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.checkpoints.starts import Starts, initial_states
from recordpublisher.fetcher.shards.discovery import Children
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.times import iso_time
from recordpublisher.publishers.shards import Shard

from .kcl_lease_table import AT_TIMESTAMP, NO_SEQUENCE_NUMBER, SHARD_END, WHOLE_AGGREGATE, KclLease, check_hash_range

NOT_HELD = "The KCL does not keep watermarks, arrival times and idle shards: going back, the job learns them again."


@dataclass(frozen=True, slots=True)
class ExportedLease:
    """The lease to write for one shard, and the lease that it replaces."""

    shard: str
    written: KclLease
    replaced: KclLease | None = None
    note: str = ""

    @property
    def goes_back(self) -> bool:
        """Whether the replaced lease is ahead of the job, so that the KCL would read records again."""
        return self.replaced is not None and self.replaced.progress > self.written.progress


def leases_from_states(
    restored: RestoredState,
    listed: Sequence[Shard],
    start: StartingPosition,
    rows: Sequence[KclLease],
    streams: Sequence[str],
) -> list[ExportedLease]:
    """Return the leases of the listed shards that are to be read, and of shards that ended in the job but not in the table.

    Raises: StateError if the rows are of another stream, if they do not name the streams although the job has several, or if the KCL cannot
    hold a position.
    """
    replaced = {row.key: row for row in rows}
    identifiers = _stream_identifiers(replaced.values(), streams)
    states = initial_states(listed, restored, Starts(start).begun_at(restored.pinned_ms))
    listed_children = Children(listed)
    exported = []
    for shard in listed:
        state = states[shard.key]
        if state.ended and shard.key not in restored.shards and not _is_open(rows, shard):
            continue  # An ancestor that ended long ago. The KCL has deleted its lease, or knows its end.
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
        exported.append(ExportedLease(shard.key, lease, replaced.get(lease.key), _note(state, checkpoint)))
    return sorted(exported, key=lambda lease: lease.shard)


def _is_open(rows: Iterable[KclLease], shard: Shard) -> bool:
    """Return whether the KCL would continue to read a shard that it has left to the job, because its lease has not ended."""
    own = (row for row in rows if row.shard_id == shard.shard_id and row.stream in (None, shard.stream))
    return any(row.checkpoint != SHARD_END for row in own)


def _checkpoint_of(shard: str, state: ShardState) -> tuple[str, int]:
    if state.ended:
        return SHARD_END, 0
    if state.position is not None:
        sequence, part = state.position.sequence, state.position.sub_sequence
        return sequence, part if state.position.is_inside_aggregate else WHOLE_AGGREGATE
    if state.start.type.value not in NO_SEQUENCE_NUMBER:
        raise StateError(f"{shard} has read nothing yet and begins {state.start.type.value}, which the KCL cannot hold")
    return state.start.type.value, 0


def _note(state: ShardState, checkpoint: str) -> str:
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
            has = f"those of {', '.join(sorted(identifiers))}" if identifiers else "none"
            raise StateError(
                f"the KCL names streams account:stream:epoch, by rows that its table has; of {stream} it has {has}"
            )
    return {stream: identifiers.pop() for stream, identifiers in found.items()}
