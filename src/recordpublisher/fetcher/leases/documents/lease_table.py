"""LeaseTable: who owns each shard of a group, since which epoch, and which shards were read to their end (E1, E7). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from recordpublisher.fetcher.shards.lineage import parents_ended
from recordpublisher.fetcher.shards.shard_state import ShardState, latest
from recordpublisher.fetcher.watermark_functions import inherited_watermark
from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.positions import StartingPosition

from .group_job import GroupJob


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one shard.

    - `owner`: the worker that has it; None: nobody had it yet, or it ended.
    - `epoch`: the table's version for which the owner prepared its take, or an earlier one if others were faster; 0: nobody took it. Each
      owner has a later epoch than the one before.
    - `ended`: a checkpoint with the shard's end is confirmed. Then `watermark` is its last one, `children` are the shards that follow,
      if they are known yet.
    - `seen_ms`: of a shard that ended: until when it was open, for certain (epoch ms). Of one that nobody had yet: as in `ShardState`.
    - `parents`: before the first take, the shards that must have ended.
    - `is_first`: the shard was there when its stream was first listed, so it begins at the group's start. Others begin at TRIM_HORIZON.
    """

    owner: str | None = None
    epoch: int = 0
    ended: bool = False
    watermark: int | None = None
    children: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    is_first: bool = False
    seen_ms: int | None = None

    @property
    def was_owned(self) -> bool:
        """Whether it had an owner at any time."""
        return self.epoch > 0

    @property
    def is_end_unnamed(self) -> bool:
        """Whether it ended and no child of it is known."""
        return self.ended and not self.children


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The end of a shard: its last watermark, and the parents of each of its children (`Shard.key`).

    `children` is empty where the end of a shard does not name them: then they are found by listing. `seen_ms` as in `Lease`.
    """

    watermark: int | None
    children: Mapping[str, tuple[str, ...]]
    seen_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """The leases of a group by `Shard.key`. It is replaced as a whole, and only by a process that has read the version before.

    `version` grows by one with each replacement. `writer` and `version` together make each stored value unique. `start` is where the first
    shards begin (LATEST is pinned: P3); `is_latest`: it is the time that LATEST stood for. `drained` are the workers that somebody has
    asked to leave (E11). `job` is what all processes of the group have in common (E10); None: no worker has written yet.
    """

    version: int = 1
    writer: str = ""
    start: StartingPosition = field(default_factory=StartingPosition.trim_horizon)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    job: GroupJob | None = None
    is_latest: bool = False

    @property
    def owners(self) -> set[str]:
        """Every worker that it names."""
        return {lease.owner for lease in self.leases.values() if lease.owner is not None}

    def is_owned(self, shard: str, worker: str, epoch: int) -> bool:
        """Whether the worker has the shard in this epoch."""
        lease = self.leases.get(shard)
        return lease is not None and (lease.owner, lease.epoch) == (worker, epoch)

    def can_be_read(self, shard: str) -> bool:
        """Whether the shard has not ended, and all its parents have (S2). An unknown parent has not: it may be listed later."""
        lease = self.leases[shard]
        return not lease.ended and parents_ended(lease.parents, self._has_ended)

    def initial_state(self, shard: str) -> ShardState:
        """The state with which a shard begins that nobody had yet: a child inherits the lowest watermark of its parents (W5).

        What is known of its beginning goes with it: until when its parents were open, or when a group began that began at LATEST (S5).
        """
        lease = self.leases[shard]
        start = self.start if lease.is_first else StartingPosition.trim_horizon()
        parents = tuple(parent.rpartition("/")[2] for parent in lease.parents)
        pinned_ms = start.timestamp_ms if self.is_latest else None
        seen_ms = latest(pinned_ms, lease.seen_ms, *(end.seen_ms for end in self._ends_of_parents(shard)))
        return ShardState(start, watermark=self.inherited_watermark(shard), parents=parents, seen_ms=seen_ms)

    def inherited_watermark(self, shard: str) -> int | None:
        """The lowest last watermark of the parents that have ended."""
        return inherited_watermark(end.watermark for end in self._ends_of_parents(shard))

    def after(
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
        """The next version: one write may do several of these at once.

        - `taken`: the writer takes these shards; the epoch of each.
        - `ended`: these shards ended, and their children are added without an owner (E7).
        - `found`: shards that were listed and that the table does not have.
        - `expired`: these unknown parents are past retention; nobody waits for them any more. Ended shards of which no child is known, too.
        - `children`: those of ended shards whose end did not name them, as they are listed.
        - `deleted`: the streams of these shards were deleted. Shards of later streams with these names get leases of their own.
        - `drained`: these workers are asked to leave.
        - `cleaned`: what these workers have left is about to be deleted.

        A shard that ended goes when each of its children has had an owner. Raises: ImpossibleStateError.
        """
        version = self.version + 1
        leases = {shard: lease for shard, lease in {**(found or {}), **self.leases}.items() if shard not in deleted}
        for shard, end in (ended or {}).items():
            leases = _with_end(leases, shard, end)
        for shard, listed in (children or {}).items():
            leases[shard] = replace(leases[shard], children=listed)
        if expired:
            kept = {shard: lease for shard, lease in leases.items() if shard not in expired or not lease.is_end_unnamed}
            leases = {shard: _without_parents(lease, expired, kept) for shard, lease in kept.items()}
        for shard, epoch in (taken or {}).items():
            if leases[shard].ended or not leases[shard].epoch < epoch <= version:
                raise ImpossibleStateError(f"{writer} takes {shard} in epoch {epoch}: it is {leases[shard]}")
            leases[shard] = Lease(writer, epoch)
        asked = self.drained.union(drained).difference(cleaned)
        return replace(self, version=version, writer=writer, leases=_without_followed(leases), drained=asked)

    def begun_anew(self, writer: str, leases: Mapping[str, Lease]) -> LeaseTable:
        """The next version, with other leases."""
        return replace(self, version=self.version + 1, writer=writer, leases=leases, drained=frozenset())

    def _ends_of_parents(self, shard: str) -> list[Lease]:
        return [self.leases[parent] for parent in self.leases[shard].parents if self._has_ended(parent)]

    def _has_ended(self, shard: str) -> bool:
        return shard in self.leases and self.leases[shard].ended


def _with_end(leases: Mapping[str, Lease], shard: str, end: ShardEnd) -> dict[str, Lease]:
    lease = leases[shard]
    ended = Lease(None, lease.epoch, True, end.watermark, tuple(end.children), seen_ms=end.seen_ms)
    children = {child: Lease(parents=parents) for child, parents in end.children.items()}
    return {**children, **leases, shard: ended}


def _without_parents(lease: Lease, expired: Collection[str], leases: Mapping[str, Lease]) -> Lease:
    kept = tuple(parent for parent in lease.parents if parent in leases or parent not in expired)
    return lease if kept == lease.parents else replace(lease, parents=kept)


def _without_followed(leases: Mapping[str, Lease]) -> dict[str, Lease]:
    """Without the shards that ended and whose children all had an owner. An end without known children stays: it was not read again.

    A listing may have shown one of two children only: the other one is known by its own lease.
    """
    waited_for = {parent for lease in leases.values() if not lease.was_owned for parent in lease.parents}
    return {
        shard: lease
        for shard, lease in leases.items()
        if not lease.ended or lease.is_end_unnamed or shard in waited_for
    }
