"""Keeps which worker owns each shard of a group, since which epoch, and which shards were read to their end (E1, E7).

`GroupJob` is the job that all processes of the group have in common (E10).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
from msgspec import structs

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import stream_of

from ..conditional_store import Count, Millis, WorkerName, read_document, unreadable_error
from ..global_watermark_rules import inherited_watermark
from ..shards.lineage import parents_ended
from ..shards.read_state import latest
from ..shards.shard_state import ShardState, StoredStarts, start_of, stored_start
from . import document_format

_LONGEST_SHARD_ID = 1_000
"""The longest shard id that a stored table may have (characters). Ids of Kinesis have at most 128; ids of a plugin may be longer."""


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """The lease table of a group: the lease of each shard, by `Shard.key`.

    A process replaces the stored table as a whole, and only if it has read the current version.

    - `version`: grows by one with each replacement. `writer` and `version` together make each stored value unique.
    - `start`: where the first shards begin. LATEST is replaced by a time.
    - `is_latest`: whether `start` is a time that replaced LATEST.
    - `drained`: the workers that a person has asked to leave.
    - `job`: what all processes of the group have in common. None if only a command has written the table so far.
    - `alone`: the worker that owns every shard, if the job runs alone. The table then has no leases: `with_alone_leases` computes them from
      that worker's positions.
    """

    version: int = 1
    writer: str = ""
    start: StartingPosition = field(default_factory=StartingPosition.trim_horizon)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    job: GroupJob | None = None
    is_latest: bool = False
    alone: AloneOwner | None = None

    @property
    def owners(self) -> set[str]:
        """Every worker that holds a lease, and the worker that runs the job alone, if there is one."""
        alone = set() if self.alone is None else {self.alone.worker}
        return alone | {lease.owner for lease in self.leases.values() if lease.owner is not None}

    def is_owned(self, shard: str, worker: str, epoch: int) -> bool:
        """Return whether the worker holds the shard in this epoch."""
        lease = self.leases.get(shard)
        return lease is not None and (lease.owner, lease.epoch) == (worker, epoch)

    def is_of_job(self, shard: str) -> bool:
        """Return whether the job reads the shard's stream now. The lease of any other shard only keeps its position."""
        return self.job is None or self.job.reads(shard)

    def can_be_read(self, shard: str) -> bool:
        """Return whether the shard has not ended, and each of its parents has ended.

        A parent that the table does not have counts as not ended, because a later listing may contain it.
        """
        lease = self.leases[shard]
        return not lease.ended and parents_ended(lease.parents, self._has_ended)

    def initial_state(self, shard: str) -> ShardState:
        """Return the first state of a shard that no worker has read yet. A child inherits the lowest watermark of its parents.

        The state's `seen_ms` is the latest known time at which no record of the shard can have been lost. At that time its parents were
        still open, or the group began at LATEST.
        """
        lease = self.leases[shard]
        start = self.start if lease.is_first else StartingPosition.trim_horizon()
        pinned_ms = start.timestamp_ms if self.is_latest else None
        if lease.start is not None:
            start = start_of(lease.start)
        parents = tuple(parent.rpartition("/")[2] for parent in lease.parents)
        seen_ms = latest(pinned_ms, lease.seen_ms, *(end.seen_ms for end in self._ends_of_parents(shard)))
        return ShardState(start, watermark=self.inherited_watermark(shard), parents=parents, seen_ms=seen_ms)

    def inherited_watermark(self, shard: str) -> int | None:
        """Return the lowest watermark that an ended parent of the shard had at its end, or None if none is known."""
        return inherited_watermark(end.watermark for end in self._ends_of_parents(shard))

    def with_changes(
        self,
        writer: str,
        *,
        taken: Mapping[str, int] | None = None,
        ended: Mapping[str, ShardEnd] | None = None,
        found: Mapping[str, Lease] | None = None,
        expired: Collection[str] = (),
        children: Mapping[str, tuple[str, ...]] | None = None,
        deleted: Collection[str] = (),
        drained: Collection[str] = (),
        cleaned: Collection[str] = (),
    ) -> LeaseTable:
        """Return the next version of the table, with all of these changes.

        - `taken`: shards that the writer acquires, with the epoch of each.
        - `ended`: shards that ended. Their children are added without an owner.
        - `found`: listed shards that the table does not have.
        - `expired`: shards past retention. Their children no longer wait for them. Their leases are removed if they have ended and have no
          known children.
        - `children`: listed children of ended shards whose end did not name them.
        - `deleted`: shards of deleted streams, whose leases are removed.
        - `drained`: workers that are asked to leave.
        - `cleaned`: workers whose documents are about to be deleted.

        The lease of an ended shard is removed when each of its children has had an owner.

        Raises: ImpossibleStateError if a shard in `taken` has ended, or if its new epoch is not possible. The epoch must be above the last
        one, and at most the new version.
        """
        version = self.version + 1
        leases = {shard: lease for shard, lease in {**(found or {}), **self.leases}.items() if shard not in deleted}
        for shard, end in (ended or {}).items():
            leases = _with_end(leases, shard, end)
        for shard, listed in (children or {}).items():
            leases[shard] = structs.replace(leases[shard], children=listed)
        if expired:
            kept = {
                shard: lease
                for shard, lease in leases.items()
                if shard not in expired or not lease.has_unknown_children
            }
            leases = {shard: _without_parents(lease, expired, kept) for shard, lease in kept.items()}
        for shard, epoch in (taken or {}).items():
            if leases[shard].ended or not leases[shard].epoch < epoch <= version:
                raise ImpossibleStateError(
                    f"{writer} acquires {shard} in epoch {epoch}, which its lease does not allow: {leases[shard]}"
                )
            leases[shard] = Lease(writer, epoch)
        asked = self.drained.union(drained).difference(cleaned)
        return replace(self, version=version, writer=writer, leases=_without_followed(leases), drained=asked)

    def reset_to(self, writer: str, leases: Mapping[str, Lease]) -> LeaseTable:
        """Return the next version, written by `writer`, with only these leases. `alone` is None and `drained` is empty."""
        return replace(self, version=self.version + 1, writer=writer, leases=leases, drained=frozenset(), alone=None)

    def with_alone_owner(self, worker: str, job: GroupJob) -> LeaseTable:
        """Return the next version, for a job that `worker` runs alone.

        It has no leases, because the worker's positions have the state of each shard.
        """
        version = self.version + 1
        return replace(self.reset_to(worker, {}), job=job.named_after(self.job), alone=AloneOwner(worker, version))

    def with_alone_leases(self, states: Mapping[str, ShardState], pinned_ms: int | None = None) -> LeaseTable:
        """Return the table of a job that runs alone, completed with a lease for each shard in the positions of its worker.

        - `states`: the states in the positions of that worker, by `Shard.key`.
        - `pinned_ms`: the time that replaced LATEST, if the job began at LATEST.
        """
        if self.alone is None:
            return self
        alone = self.alone
        leases = {
            **self.leases,
            **{shard: lease_from_state(shard, states, alone.worker, alone.epoch) for shard in states},
        }
        start = self.start if pinned_ms is None else StartingPosition.at_timestamp(pinned_ms)
        return replace(self, leases=leases, start=start, is_latest=self.is_latest or pinned_ms is not None)

    def _ends_of_parents(self, shard: str) -> list[Lease]:
        return [self.leases[parent] for parent in self.leases[shard].parents if self._has_ended(parent)]

    def _has_ended(self, shard: str) -> bool:
        return shard in self.leases and self.leases[shard].ended


def table_to_bytes(table: LeaseTable) -> bytes:
    """Return the table as JSON.

    The lease of an owned shard is stored as `[index of its owner, epoch]`, and any other lease as an object (`Lease`).
    """
    workers = sorted({lease.owner for lease in table.leases.values() if lease.owner is not None})
    numbers = {worker: number for number, worker in enumerate(workers)}
    leases = {shard: _stored_lease(shard, lease, numbers) for shard, lease in sorted(table.leases.items())}
    drained, by_stream = tuple(sorted(table.drained)), document_format.by_stream(leases)
    stored = _StoredTable(
        table.version,
        table.writer,
        stored_start(table.start),
        workers,
        by_stream,
        drained,
        table.job,
        table.is_latest,
        table.alone,
    )
    return msgspec.json.encode(stored)


def table_from_bytes(value: bytes, place: str) -> LeaseTable:
    """Read a table that `table_to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
    stored = read_document(value, _StoredTable, place, document_format.FORMAT)
    if any(isinstance(lease, tuple) and lease[0] >= len(stored.workers) for _, lease in stored.by_shard()):
        raise unreadable_error(place, "a lease names an owner that is not among the workers of the table")
    leases = {shard: _lease_of(shard, lease, stored.workers) for shard, lease in stored.by_shard()}
    for shard, lease in leases.items():
        if len(shard_id := shard.rpartition("/")[2]) > _LONGEST_SHARD_ID:
            raise unreadable_error(place, f"{shard_id[:80]!r}... is not a shard id: it has {len(shard_id)} characters")
        if shard in lease.children or shard in lease.parents:
            raise unreadable_error(place, f"{shard} is its own {'child' if shard in lease.children else 'parent'}")
    drained, alone = frozenset(stored.drained), None if stored.alone is None else AloneOwner(*stored.alone)
    start = start_of(stored.start)
    return LeaseTable(stored.version, stored.writer, start, leases, drained, stored.job, stored.latest, alone)


class _StoredTable(msgspec.Struct, omit_defaults=True, tag_field="format", tag=document_format.FORMAT):
    version: Count
    writer: str
    start: StoredStarts
    workers: list[WorkerName]
    leases: dict[str, dict[str, tuple[Count, Count] | Lease]]
    drained: tuple[str, ...] = ()
    job: GroupJob | None = None
    latest: bool = False
    alone: tuple[WorkerName, Count] | None = None

    def by_shard(self) -> Iterator[tuple[str, tuple[int, int] | Lease]]:
        return document_format.by_key(self.leases)


def _stored_lease(shard: str, lease: Lease, numbers: Mapping[str, int]) -> tuple[int, int] | Lease:
    if lease.owner is not None and lease == Lease(lease.owner, lease.epoch):
        return numbers[lease.owner], lease.epoch
    return _with_keys(lease, document_format.short_keys, stream_of(shard))


def _lease_of(shard: str, stored: tuple[int, int] | Lease, workers: Sequence[str]) -> Lease:
    if isinstance(stored, tuple):
        return Lease(workers[stored[0]], stored[1])
    return _with_keys(stored, document_format.long_keys, stream_of(shard))


def _with_keys(lease: Lease, changed: Callable[[Iterable[str], str], tuple[str, ...]], stream: str) -> Lease:
    if not lease.children and not lease.parents:
        return lease
    return structs.replace(lease, children=changed(lease.children, stream), parents=changed(lease.parents, stream))


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lease of one shard. It is stored in the same form, but with short ids of its children and parents.

    To add a field: declare it here with a default and a short stored name, set it where the lease changes (`LeaseTable.with_changes`), and
    add it to the strategy `tables` in tests/fetcher/leases/test_documents.py. A lease with an owner takes more bytes if the field does not
    have its default. A write that is repeated may give the field another value than the first attempt.

    - `owner`: the worker that holds the lease. None if no worker has held it yet, or if the shard has ended.
    - `epoch`: a number that is higher for each next owner; 0 if no worker has held the lease. It is the version of the table that the owner
      wanted to write when it stored the shard's position in advance. The version that names the owner is higher if other workers have
      written the table in between.
    - `ended`: whether a stored checkpoint has the shard's end. If so, `watermark` is the shard's last watermark, and `children` are its
      known children.
    - `seen_ms`: a time at which an ended shard was certainly open (epoch ms). If the lease has had no owner, `ShardState` describes it.
    - `parents`: the shards that must end first, if the lease has had no owner.
    - `start`: where the shard begins, if a person or an earlier mode of the job has decided that. It is used until the lease has an owner.
      If it is None, as for most shards, `is_first` decides.
    - `is_first`: whether the shard existed when its stream was first listed, so that it begins at the group's start. Other shards begin at
      TRIM_HORIZON.
    """

    owner: WorkerName | None = None
    epoch: Count = 0
    ended: bool = False
    watermark: Millis | None = None
    children: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    is_first: bool = msgspec.field(name="first", default=False)
    seen_ms: Millis | None = msgspec.field(name="seen", default=None)
    start: StoredStarts | None = None

    @property
    def was_owned(self) -> bool:
        """Whether any worker has held the lease."""
        return self.epoch > 0

    @property
    def has_unknown_children(self) -> bool:
        """Whether the shard has ended and none of its children is known."""
        return self.ended and not self.children


class AloneOwner(NamedTuple):
    """The worker that owns every shard of a job that runs alone, and the version of the table in which it became the owner."""

    worker: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The end of a shard: its last watermark, and the parents of each of its children (by `Shard.key`).

    `children` is empty if the shard's last read did not name them; a listing finds them then. `seen_ms` is described in `Lease`.
    """

    watermark: int | None
    children: Mapping[str, tuple[str, ...]]
    seen_ms: int | None = None


def is_readable(state: ShardState) -> bool:
    """Return whether a worker may read the shard at once: it has not ended, and does not wait for its parents.

    A shard that has a position or a watermark was read before, so it does not wait, even if the state says that it waits for its parents.
    """
    has_begun = state.position is not None or state.watermark is not None
    return not state.ended and (has_begun or not state.waiting)


def lease_from_state(shard: str, states: Mapping[str, ShardState], worker: str, epoch: int) -> Lease:
    """Return the lease of a shard, from the states that `worker` has stored.

    `worker` owns the shard, unless the shard has ended or waits for its parents.
    """
    state, (stream, _, shard_id) = states[shard], shard.rpartition("/")
    if state.ended:
        children = (key for key, other in states.items() if key.startswith(f"{stream}/") and shard_id in other.parents)
        return Lease(None, epoch, True, state.watermark, tuple(children), seen_ms=state.seen_ms)
    if not is_readable(state):
        start = None if state.start == StartingPosition.trim_horizon() else stored_start(state.start)
        return Lease(
            parents=tuple(f"{stream}/{parent}" for parent in state.parents), seen_ms=state.seen_ms, start=start
        )
    return Lease(worker, epoch)


def _with_end(leases: Mapping[str, Lease], shard: str, end: ShardEnd) -> dict[str, Lease]:
    lease = leases[shard]
    ended = Lease(None, lease.epoch, True, end.watermark, tuple(end.children), seen_ms=end.seen_ms)
    children = {child: Lease(parents=parents) for child, parents in end.children.items()}
    return {**children, **leases, shard: ended}


def _without_parents(lease: Lease, expired: Collection[str], leases: Mapping[str, Lease]) -> Lease:
    kept = tuple(parent for parent in lease.parents if parent in leases or parent not in expired)
    return lease if kept == lease.parents else structs.replace(lease, parents=kept)


def _without_followed(leases: Mapping[str, Lease]) -> dict[str, Lease]:
    """Return the leases without the ended shards whose children have all had an owner.

    An ended shard without a known child stays, so that the shard is not read again.
    """
    waited_for = {parent for lease in leases.values() if not lease.was_owned for parent in lease.parents}
    return {
        shard: lease
        for shard, lease in leases.items()
        if not lease.ended or lease.has_unknown_children or shard in waited_for
    }


# GroupJob identifies the job that all processes of a group have in common (E10).


class GroupJob(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A job, identified by what its processes read and where they write.

    The lease table contains it, so that two jobs never share shards by mistake.

    - `sink`: the destination without secrets (`Sink.destination`). Empty if only the name is known, as after an import of positions.
    - `streams`: names of the streams, sorted; None if the list may change while the job runs.
    - `keeps_positions`: whether the positions are stored in the sink with its rows, and not in the group's store.
    - `name`: `flink.job.name`, or None if it is not set. None is compatible with every name.
    """

    sink: str
    streams: tuple[str, ...] | None = None
    keeps_positions: bool = False
    name: str | None = None

    def contradiction(self, of_group: GroupJob | None) -> str | None:
        """Return, as a clause of a message, how the group's job `of_group` differs from this one. Return None if they are the same.

        A table that names no job is compatible with every job.
        """
        if of_group is None:
            return None
        words = zip(of_group._words(), self._words(), strict=True) if of_group.sink else ()
        differences = [f"the group {theirs}, and this process {ours}" for theirs, ours in words if theirs != ours]
        if of_group.name is not None and self.name is not None and of_group.name != self.name:
            differences.insert(0, f"the name of the group is {of_group.name}, and that of this process {self.name}")
        return "; ".join(differences) or None

    def reads(self, shard: str) -> bool:
        """Return whether the job may read the shard (`Shard.key`), by the shard's stream."""
        return self.streams is None or shard.rpartition("/")[0] in self.streams

    def named_after(self, before: GroupJob | None) -> GroupJob:
        """Return this job, with the name of the job `before` if it has none.

        Otherwise a run without a name would let any job continue from the positions.
        """
        return self if self.name or before is None else structs.replace(self, name=before.name)

    def _words(self) -> tuple[str, str, str]:
        streams = "a list of streams that may change" if self.streams is None else ", ".join(self.streams)
        place = "in the sink" if self.keeps_positions else "in the store"
        return f"reads {streams}", f"writes to {self.sink}", f"keeps its positions {place}"


def table_of_new_group(folded: LeaseTable, writer: str, first: LeaseTable | None = None) -> LeaseTable:
    """Return the lease table with which `writer`, a worker of a group, takes over a job that ran alone.

    - `folded`: the lease table of the job that ran alone, completed by `LeaseTable.with_alone_leases`.
    - `writer`: the name of the worker that writes the table.
    - `first`: the table of a new group. Its leases are used if the job that ran alone had not begun any shard.
    """
    table = replace(folded, version=folded.version + 1, writer=writer, alone=None)
    if first is None or folded.leases:
        return table
    return replace(table, leases=first.leases, start=first.start, is_latest=first.is_latest)
