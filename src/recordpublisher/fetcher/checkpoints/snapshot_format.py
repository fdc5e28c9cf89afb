"""Defines the format of snapshots (versioned, readable JSON), and merges several snapshots into one (S5).

It also names the documents of a job in a conditional store, and refuses the positions of another job (E10).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.job_properties import JOB_NAME, STATE_URI
from recordpublisher.publishers.safe_text import few_of

from ..conditional_store import Count, Millis, ShardKey, document_as
from ..shards.shard_state import ShardState, StoredState
from ..sink import State

log = logging.getLogger("recordpublisher.start")
VERSION = 2


def snapshot_to_json(
    shards: Mapping[str, ShardState],
    pinned_ms: int | None,
    generation: int,
    taken_ms: int | None = None,
) -> dict[str, Any]:
    """Return a snapshot: the state of each shard, as a plain dict that can be stored as JSON.

    - `pinned_ms`, `taken_ms`: described in `RestoredState`.
    - `generation`: the number of this start of the job, which is higher than that of the previous start.

    Raises: StateError if the job is not open: `generation` is 0 and `shards` is empty. Such a snapshot would replace a complete one.
    """
    if generation < 1 and not shards:
        raise StateError("the fetcher is not open and has no shards: take snapshots inside 'async with fetcher:'")
    return {
        "version": VERSION,
        "generation": generation,
        "pinnedStartMs": pinned_ms,
        "shards": {key: state.to_json() for key, state in shards.items()},
        **({} if taken_ms is None else {"takenMs": taken_ms}),
    }


class StoredSnapshot(msgspec.Struct, rename="camel"):
    """The fields of a snapshot as they are stored, with checks of their types and ranges."""

    generation: Count
    shards: dict[ShardKey, StoredState]
    pinned_start_ms: Millis | None = None
    taken_ms: Millis | None = None


class _Version(msgspec.Struct):
    version: int


def checked_snapshot(snapshot: State) -> StoredSnapshot:
    """Check a snapshot that a store or a sink has returned. Raises: StateError if it cannot be read."""
    place = "the stored state"
    version = document_as(snapshot, _Version, f"{place} is not a snapshot of recordpublisher: it").version
    if version != VERSION:
        advice = "upgrade recordpublisher" if version > VERSION else "start the job without it"
        raise StateError(f"{place} has version {version}, this release reads version {VERSION} only: {advice}")
    return document_as(snapshot, StoredSnapshot, place)


@dataclass(frozen=True, slots=True)
class RestoredState:
    """The stored state that a job continues from, merged from all snapshots that were found.

    - `shards`: the state of each shard by `Shard.key`.
    - `pinned_ms`: the time that replaced LATEST, or a start at an age (such as an hour ago), when the job first started. Later starts use
      it again.
    - `generation`: the highest generation. Each start of the job has a higher one.
    - `taken_ms`: the time of the last snapshot, by the clock of the machine that took it. Only shown to people.
    """

    shards: Mapping[str, ShardState] = field(default_factory=dict)
    pinned_ms: int | None = None
    generation: int = 0
    taken_ms: int | None = field(default=None, compare=False)

    @property
    def streams(self) -> set[str]:
        """The streams that have at least one shard with restored state."""
        return {key.rsplit("/", 1)[0] for key in self.shards}


def merge_snapshots(snapshots: Iterable[State], order_of: Callable[[str], Any] = int) -> RestoredState:
    """Merge snapshots into one state.

    For each shard the state of the newest generation counts, and within a generation the state with the furthest position.

    `order_of`: returns a sort key for a sequence number.

    Raises: StateError if a snapshot cannot be read or has another version.
    """
    best: dict[str, tuple[int, ShardState]] = {}
    pinned: list[int] = []
    taken: list[int] = []
    newest = 0
    for snapshot in map(checked_snapshot, snapshots):
        newest = max(newest, snapshot.generation)
        if snapshot.pinned_start_ms is not None:
            pinned.append(snapshot.pinned_start_ms)
        if snapshot.taken_ms is not None:
            taken.append(snapshot.taken_ms)
        for key, stored in snapshot.shards.items():
            found = (snapshot.generation, stored.state)
            other = best.get(key)
            if other is None or _is_ahead(found, other, order_of):
                best[key] = found
    shards = {key: state for key, (_, state) in best.items()}
    return RestoredState(shards, min(pinned, default=None), newest, max(taken, default=None))


def overlay(below: RestoredState, above: RestoredState) -> RestoredState:
    """Merge two states. The state of a shard in `above` takes precedence over the one in `below`."""
    pinned = above.pinned_ms if above.pinned_ms is not None else below.pinned_ms
    taken = max((each.taken_ms for each in (below, above) if each.taken_ms is not None), default=None)
    return RestoredState({**below.shards, **above.shards}, pinned, max(below.generation, above.generation), taken)


def _is_ahead(mine: tuple[int, ShardState], other: tuple[int, ShardState], order_of: Callable[[str], Any]) -> bool:
    if mine[0] != other[0]:
        return mine[0] > other[0]
    return _progress(mine[1], order_of) > _progress(other[1], order_of)


def _progress(state: ShardState, order_of: Callable[[str], Any]) -> tuple[Any, ...]:
    """Return a sort key for how far a shard was read. Raises: StateError if `order_of` cannot order the sequence number."""
    if state.position is None:
        return (state.ended, False)
    try:
        order = order_of(state.position.sequence)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"a stored position has the sequence number {state.position.sequence!r}, which this publisher cannot order: "
            "did a job with another publisher store it?"
        ) from error
    part = state.position.sub_sequence if state.position.is_inside_aggregate else float("inf")
    return (state.ended, True, order, part)


# Names of a job's documents in a state store, and the check that positions do not belong to another job (E10).

ANOTHER_PLACE_OF_SINK = f"another folder or table of the sink (or, in a database, another {JOB_NAME.key})"
"""Words for messages: what to change if another job keeps its positions with the rows of the same sink."""
ANOTHER_PLACE = f"another {STATE_URI.key}, or if the sink keeps the positions, {ANOTHER_PLACE_OF_SINK}"
"""Words for messages: what to change if another job keeps its positions in the same place."""
_TAKE_ALONG = (
    "To take the positions along, `recordpublisher positions show JOB --json > positions.jsonl` writes them into a file, and "
    "`recordpublisher positions import JOB --from file:positions.jsonl` reads them there"
)
COPY_POSITIONS = (
    "`recordpublisher positions show JOB --json > positions.jsonl`{source}, then `recordpublisher positions import JOB "
    "--from file:positions.jsonl --force --apply`"
)
"""Words for messages: the commands that replace the positions of a job by copied ones.

`source`: words on the properties to use, such as ` with the properties of that sink`.
"""
LEASE_TABLE = "group/leases"
"""The name of a group's lease table."""
PARTS_PREFIX = "group/positions/"
"""The prefix of the names under which the positions of workers are stored: in a group's store, or in a sink's store next to its rows."""


def refuse_other_job(place: str, stored: str | None, given: str | None) -> None:
    """Refuse stored positions that belong to a job with another `flink.job.name`.

    - `place`: where the positions are stored, for the message.
    - `stored`, `given`: the names of the job that stored them and of this job. If one is missing, the jobs may be the same.

    Raises: StateError if both names are given and differ.
    """
    if stored and given and stored != given:
        raise StateError(
            f"{place} has the positions of job '{stored}', and this is job '{given}', which would continue from them. Give it a place of "
            f"its own ({ANOTHER_PLACE}), or set {JOB_NAME.key}={stored} to continue as that job. {_TAKE_ALONG}"
        )


def warn_of_other_streams(theirs: Collection[str], ours: Collection[str], place: str = "") -> None:
    """Log a warning if positions are stored only for streams that this job does not read, as after a copy of a properties file.

    - `theirs`: the streams with stored positions.
    - `ours`: the streams that this job reads.
    - `place`: where the positions are stored, for the log.
    """
    if theirs and not set(theirs) & set(ours):
        log.warning(
            "the stored positions%s belong to %s, and this job reads %s. The positions of both are kept. If another job reads the "
            "stored streams, stop this job and give it %s, because two jobs cannot run with the same place",
            f" in {place}" if place else "",
            few_of(sorted(theirs)),
            few_of(sorted(ours)),
            ANOTHER_PLACE,
        )
