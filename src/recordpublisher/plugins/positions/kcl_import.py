"""Converts the KCL's leases to the shard states of a job, which resumes after the last checkpoint without repeating or skipping records.

Pure functions.
"""

from collections.abc import Iterable, Sequence

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.checkpoints.starts import Starts, initial_states
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.groups.reading import INITIAL_POSITION
from recordpublisher.publishers.shards import Shard

from .job_positions import ImportedPosition
from .kcl_lease_table import AT_TIMESTAMP, LATEST, WHOLE_AGGREGATE, KclLease, check_hash_range


def leases_by_stream(leases: Iterable[KclLease], streams: Sequence[str], place: str) -> dict[str, list[KclLease]]:
    """Return the leases of each of the job's streams. A table that does not name its stream is the table of a job with one stream.

    Raises: StateError if a stream has no lease, or if the table has several streams of the same name.
    """
    leases = list(leases)
    unnamed = [lease for lease in leases if lease.stream is None]
    if unnamed and len(streams) > 1:
        raise StateError(
            f"the leases in {place} do not name their stream, and the job reads several: {', '.join(streams)}"
        )
    found = {stream: [*unnamed, *(lease for lease in leases if lease.stream == stream)] for stream in streams}
    for stream, own in found.items():
        if not own:
            raise StateError(f"{place} has no lease of {stream}")
        identifiers = sorted({str(lease.stream_id) for lease in own})
        if len(identifiers) > 1:
            raise StateError(f"{place} has leases of several streams named {stream}: {', '.join(identifiers)}")
    return found


def positions_from_leases(
    leases: Sequence[KclLease], listed: Sequence[Shard], stream: str, start: StartingPosition, now_ms: int
) -> list[ImportedPosition]:
    """Return the position of every leased or listed shard of a stream.

    - `start`: where the job's properties begin.
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
        note = _note(lease, shard is not None)
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
    # 0 stands for a record that is not an aggregate, or for the first sub-record of an aggregate. A reader drops exactly that one.
    is_whole = lease.sub_sequence >= WHOLE_AGGREGATE
    position = SequenceNumber(lease.checkpoint) if is_whole else SequenceNumber(lease.checkpoint, lease.sub_sequence)
    return ShardState(first, position, parents=parents)


def _note(lease: KclLease, is_listed: bool) -> str:
    notes = []
    if not is_listed and not lease.has_ended:
        notes.append("the stream no longer lists it: its unread records are lost")
    if lease.has_pending:
        notes.append("a prepared checkpoint was not completed: what follows the completed one is read again")
    if lease.checkpoint == LATEST:
        notes.append("nothing was checkpointed: what arrived before the import is not read")
    return "; ".join(notes)
