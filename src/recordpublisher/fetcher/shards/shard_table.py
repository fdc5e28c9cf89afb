"""ShardTable: the shards of a worker, and the order that reshards impose on them (S2)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Protocol, overload

from recordpublisher.publishers.base import is_fault_of_plugin
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    RecordPublisherError,
    StreamNotFoundError,
)
from recordpublisher.publishers.log_fields import about, with_notes
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, is_listing_older_than, stream_of

from ..settings import WAITS_FOR_EVERY_SHARD, IdleIntervals
from ..watermark_rules import inherited_watermark
from .shard_entry import NO_LISTENER, ShardEntry, ShardListener, ShardStage
from .shard_reading import ShardState

ListingHandler = Callable[[str, list[Shard]], Awaitable[None]]
"""Called with a stream and its complete listing."""


class ShardTable:
    """Every listed shard. The worker's own shards have an entry; the others are remembered as listed."""

    def __init__(
        self,
        has_others: bool = False,
        is_expired: Callable[[str], bool] = lambda key: True,
        is_endless: Callable[[str], bool] = lambda stream: False,
        idle_intervals: IdleIntervals = WAITS_FOR_EVERY_SHARD,
    ) -> None:
        self._listener: ShardListener = NO_LISTENER
        self._entries: dict[str, ShardEntry] = {}
        self._listed: dict[str, Shard] = {}
        self._children = Children()
        """The children of listed shards."""
        self._last_listing: dict[str, set[str]] = {}
        self._unlisted: set[str] = set()
        """Shards that dropped out of the listing and cannot be removed yet."""
        self._finished_before: set[str] = set()
        """Shards that were read to their end and no longer have an entry. They are never added again."""
        self._removed: Counter[str] = Counter()
        """The totals of shards that were removed."""
        self._has_others = has_others
        """Whether other processes read shards of the job.

        A parent without an entry then counts as ended, because its child has a lease (E7).
        """
        self._is_expired = is_expired
        self._is_endless = is_endless
        self._idle_intervals = idle_intervals

    def tell(self, listener: ShardListener) -> None:
        """Notify this listener of events of the shards that are added from now on."""
        self._listener = listener

    def __iter__(self) -> Iterator[ShardEntry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> ShardEntry:
        return self._entries[key]

    def total(self, counter: str) -> int:
        """Return the sum of one of `TOTALS`, which never falls."""
        return self._removed[counter] + sum(map(TOTALS[counter], self._entries.values()))

    def count(self, key: str, counter: str) -> None:
        """Count a record that was left out. A sink may reject records whose shard is gone already."""
        if key in self._entries:
            self._entries[key].metrics.add(counter)
        else:
            self._removed[counter] += 1

    def add_listed(self, shards: Iterable[Shard]) -> list[Shard]:
        """Remember listed shards of any owner. Return the new ones. A shard that was read to its end before is not new."""
        fresh = [shard for shard in shards if shard.key not in self._listed and shard.key not in self._finished_before]
        for shard in fresh:
            self._remember(shard)
        return fresh

    def listed_shards(self) -> dict[str, Shard]:
        """Return every listed shard by key, of any owner."""
        return self._listed

    def children_of(self, parent: str) -> list[Shard]:
        """Return the listed children of a shard (`Shard.key`), of any owner."""
        return self._children.of(parent)

    def add(
        self, shard: Shard, state: ShardState, *, owned_since_ms: int | None = None, taken_over_below: int | None = None
    ) -> ShardEntry:
        """Add a shard that this worker owns."""
        entry = ShardEntry(
            shard,
            replace(state, parents=shard.parents),
            self._listener,
            owned_since_ms=owned_since_ms,
            taken_over_below=taken_over_below,
            idle_intervals=self._idle_intervals,
        )
        self._entries[shard.key] = entry
        self._remember(shard)
        self._listener.on_added(entry)
        return entry

    def own_children_of(self, parent: str) -> list[ShardEntry]:
        """Return the children of a shard (`Shard.key`) that this worker owns."""
        return [self._entries[child.key] for child in self.children_of(parent) if child.key in self._entries]

    def may_start(self, entry: ShardEntry) -> bool:
        """Return whether the shard waits, and its parents are finished (after a merge: both) (S2)."""
        return entry.stage is ShardStage.WAITING and self.parents_finished(entry.shard)

    def parents_finished(self, shard: Shard) -> bool:
        """Return whether the last record of every parent was emitted.

        A parent past retention counts as finished. A parent that is only missing from the last listing does not, nor
        does a parent that no listing has shown yet: after a merge, the end of one parent may name the child before the
        other parent was listed.
        """
        return parents_ended(parent_keys(shard), lambda parent: self._is_finished(parent, shard))

    def inherited_watermark(self, shard: Shard) -> int | None:
        """Return the watermark at which a child starts: the lowest of its parents here (W5)."""
        return inherited_watermark(
            self._entries[key].state.watermark for key in parent_keys(shard) if key in self._entries
        )

    def mark_finished(self, keys: Iterable[str]) -> None:
        """Remember shards that were read to their end before, by the restored state, and have no entry here."""
        self._finished_before.update(keys)

    def update_listing(self, stream: str, listed: Iterable[Shard]) -> set[str]:
        """Apply a complete listing of a stream. Return the shards that it lacks and that must not count as expired for that alone (S5).

        These are this worker's shards that have ended, and the parents for which its shards wait.
        """
        listed = list(listed)
        now = {shard.key for shard in listed}
        before = self._last_listing.get(stream, ())
        for shard in listed:
            if shard.key not in before and shard.key in self._listed:
                self._listener.on_listed(shard, is_in_listing=True)
            self._update_closed(shard)
        missing = self._last_listing.get(stream, set()) - now
        # A listing may be older than the one before it. A shard that is younger than every listed one is not gone: if
        # it were removed, the next listing would find it again, and it would be read from its start.
        young = {key for key in missing if key in self._listed and is_listing_older_than(self._listed[key], listed)}
        self._unlisted = (self._unlisted | missing) - now - young
        self._last_listing[stream] = now | young
        of_stream = [entry for entry in self if entry.shard.stream == stream]
        ended = {entry.key for entry in of_stream if entry.stage is ShardStage.ENDED}
        waiting = [entry.shard for entry in of_stream if entry.stage is ShardStage.WAITING and entry.key in now]
        awaited = {key for shard in waiting for key in parent_keys(shard)}
        return (ended & self._unlisted) | (awaited - now - self._finished_before - self._entries.keys())

    def removable(self) -> list[str]:
        """Return the unlisted shards that may be removed now (S5).

        A shard that the publisher still has, and the stream does not list, is removed once it has ended and its children have
        started: the children prove to a restart that it was read. Otherwise snapshots would grow with the age of an archive.

        A shard that this worker owns may be removed once it has ended and expired and its children in this worker have started. A
        shard of another worker may be removed at once, because it does not decide whether its children may start.
        """
        awaited = {key for entry in self if entry.stage is ShardStage.WAITING for key in parent_keys(entry.shard)}
        archived = [entry.key for entry in self if entry.shard.is_unlisted and self._is_succeeded(entry)]
        return [*(key for key in self._unlisted if self._may_be_removed(key, awaited)), *archived]

    def is_exhausted(self, streams: Collection[str]) -> bool:
        """Return whether no more records of these streams can come.

        That is so when listings have shown every shard as closed, and the own ones were read to their ends. A stream
        without shards may get some.

        A Kinesis stream always has an open shard; a listing that shows none is older than a reshard. Only sources of a
        finite size become exhausted.
        """
        all_closed = bool(self._listed) and all(shard.closed for shard in self._listed.values())
        if not all_closed or any(entry.stage is not ShardStage.ENDED for entry in self):
            return False
        listed = {shard.stream for shard in self._listed.values()}
        return listed.issuperset(streams) and not any(map(self._is_endless, listed))

    def states(self) -> dict[str, ShardState]:
        """Return the state of every shard that this worker owns, for a snapshot."""
        return {entry.key: entry.snapshot_state for entry in self}

    def remove(self, key: str) -> None:
        """Remove a shard, whether this worker owns it or it is only listed."""
        if key in self._entries:
            if self._entries[key].stage is ShardStage.ENDED:
                self._finished_before.add(key)
            self._remove_entry(key)
        if key in self._listed:
            self._children.remove(self._listed.pop(key))
        self._unlisted.discard(key)

    def remove_stream(self, stream: str) -> dict[str, ShardState]:
        """Forget every shard of a stream that is no longer read. Return the states of those that this worker owns."""
        states = {entry.key: entry.snapshot_state for entry in self if entry.shard.stream == stream}
        for key in states:
            self._remove_entry(key)
        for shard in [shard for shard in self._listed.values() if shard.stream == stream]:
            self._children.remove(self._listed.pop(shard.key))
        self._last_listing.pop(stream, None)
        return states

    def forget_finished(self, stream: str) -> None:
        """Forget the finished shards of a deleted stream, because the shards of a later stream of its name are different."""
        self._finished_before = {key for key in self._finished_before if stream_of(key) != stream}

    def _remember(self, shard: Shard) -> None:
        if shard.key not in self._listed:
            self._listed[shard.key] = shard
            self._children.add(shard)
            self._listener.on_listed(shard, is_in_listing=False)

    def _update_closed(self, listed: Shard) -> None:
        """Remember that a shard was closed since it was listed first. A listing that shows it as open again is an older one."""
        known = self._listed.get(listed.key)
        if listed.closed and known is not None and not known.closed:
            self._listed[listed.key] = closed = replace(known, closed=True)
            self._children.add(closed)

    def _remove_entry(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._removed.update({counter: read(entry) for counter, read in TOTALS.items()})
        entry.remove()
        self._listener.on_removed(key)

    def _may_be_removed(self, key: str, awaited: set[str]) -> bool:
        own = self._entries.get(key)
        return own is None or (own.stage is ShardStage.ENDED and key not in awaited and self._is_expired(key))

    def _is_succeeded(self, entry: ShardEntry) -> bool:
        """Return whether a shard has ended and each of its children is read here. Others may not know yet that it has ended."""
        children = [self._entries.get(child.key) for child in self.children_of(entry.key)]
        are_read = [child is not None and child.stage is not ShardStage.WAITING for child in children]
        return entry.stage is ShardStage.ENDED and bool(are_read) and all(are_read)

    def _is_finished(self, key: str, child: Shard) -> bool:
        own = self._entries.get(key)
        if own is not None:
            return own.stage is ShardStage.ENDED
        if key in self._finished_before or self._has_others:
            return True
        was_listed = child.key in self._last_listing.get(child.stream, ())
        return was_listed and key not in self._listed and self._is_expired(key)


class ShardLister(Protocol):
    """Lists a stream's shards. Raises StreamNotFoundError if the stream does not exist."""

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Return every shard that is still listed, or the shards after the shard id `after`."""


class ShardDiscovery:
    """Lists shards. Owns which streams are read, and which of them are known to be deleted.

    `streams` is a list that may change (S10), or names that stay the same.
    """

    def __init__(self, lister: ShardLister, streams: Sequence[str], interval_ms: int) -> None:
        self._lister = lister
        self.streams = streams if isinstance(streams, StreamList) else StreamList(streams)
        self._interval = interval_ms / 1000
        self.deleted: set[str] = set()
        self.opened = set(self.streams)
        """Streams that are read. Other streams of the list do not exist yet, could not be listed, or were added a moment ago."""
        self._has_listed = False
        self.not_found: set[str] = set()
        """Streams that the last listing of all streams did not find, and of which a warning was logged."""

    async def list_all(self) -> list[Shard]:
        """Return every shard of every stream.

        Streams that do not exist are left out, with one warning, if the list may change or a fixed list was listed
        before: such a stream was deleted, and the job continues to read the others.

        Raises: StreamNotFoundError if no stream exists, or a stream of a fixed list has never existed; any other error
        of a listing.
        """
        found: list[Shard] = []
        missing: list[StreamNotFoundError] = []
        for stream in self.streams:
            try:
                found += await self._lister.list_shards(stream)
                self.opened.add(stream)
                self.not_found.discard(stream)
            except StreamNotFoundError as error:
                missing.append(error)
                is_needed = self.streams.is_fixed and not self._has_listed
                if is_needed or len(missing) == len(self.streams):
                    raise
                if stream not in self.not_found:
                    log.warning("%s; it is looked for again", error, extra=about(stream))
                self.opened.discard(stream)
                self.not_found.add(stream)
        self._has_listed = True
        return found

    def on_deleted(self, stream: str) -> None:
        """Remember that a stream was deleted. It is read again when a stream of the same name exists again."""
        self.deleted.add(stream)
        self.opened.discard(stream)

    async def list_stream(self, stream: str) -> list[Shard]:
        """Return every shard of one stream. Raises: StreamNotFoundError if it does not exist, KinesisError if the listing fails."""
        return await self._lister.list_shards(stream)

    @property
    def all_deleted(self) -> bool:
        """Whether no stream is left, and none can be added."""
        return self.streams.is_fixed and bool(self.streams) and len(self.deleted) == len(self.streams)

    async def run(self, on_listing: ListingHandler, on_closed: Callable[[str], Awaitable[None]]) -> None:
        """List periodically. A failed listing never ends the job (S3), but a plugin that is wrong does. Return when no stream is left.

        - `on_closed`: called with each stream of a fixed list that is not read, because it was deleted. The streams of
          a list that may change are looked for whenever the list is read again.
        """
        while not self.all_deleted:
            if self._interval < 0:
                return
            await asyncio.sleep(self._interval)
            for stream in tuple(self.streams):
                if stream in self.opened:
                    await self._list(stream, on_listing)
                elif self.streams.is_fixed:
                    await on_closed(stream)

    async def _list(self, stream: str, on_listing: ListingHandler) -> None:
        try:
            await on_listing(stream, await self._lister.list_shards(stream))
        except StreamNotFoundError:
            log.warning("stream %s was deleted", stream, extra=about(stream))
            self.on_deleted(stream)
        except RecordPublisherError as error:
            if is_fault_of_plugin(error):
                raise
            line = "listing the shards of %s failed, next attempt in %g s: %s"
            if isinstance(error, FatalKinesisError):
                line = "the shards of %s may not be listed, reshards are found by ChildShards only, next attempt in %g s: %s"
            log.warning(line, stream, self._interval, with_notes(error), extra=about(stream))


# Finds parents, ancestors and children of shards.


def parent_keys(shard: Shard) -> list[str]:
    """Return `Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def parents_ended(parents: Iterable[str], is_ended: Callable[[str], bool]) -> bool:
    """Return whether a shard with these parents (`Shard.key`) may start (S2).

    It may start when the last record of each parent was emitted (after a merge: of both). `finished_ancestors` says
    what follows for the ancestors of a shard that has started. `is_ended` decides for one parent. An unknown parent
    means different things, so each caller decides:

    - A worker (`ShardTable`): the parent may belong to another worker, or not be listed yet. It has not ended before a worker
      says so.
    - A group (`LeaseTable`): the parent may be listed later, so it has not ended.
    - A restored job (`initial_states`) and an offset of Spark (`source/batch_plan.py`): the parent was read before, or is past
      retention.
    """
    return all(map(is_ended, parents))


def finished_ancestors(begun: Iterable[Shard], listed: Mapping[str, Shard]) -> set[str]:
    """Return `Shard.key` of every ancestor of shards that have begun.

    Each was read to its end, because `parents_ended` let them begin (S2).

    The parents of a shard that is not `listed` are unknown. What a caller itself knows of an ancestor takes precedence
    over this.
    """
    parents = (parent for shard in begun for parent in parent_keys(shard))
    return reachable(parents, lambda key: parent_keys(listed[key]) if key in listed else ())


def reachable(start: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """Return `start`, and everything that steps of `following` lead to.

    Each key is visited once, and without recursion, because 2^n paths lead to a shard behind n splits and merges.
    """
    visited: set[str] = set()
    to_visit = [*start]
    while to_visit:
        key = to_visit.pop()
        if key not in visited:
            visited.add(key)
            to_visit += following(key)
    return visited


class Children:
    """The children among known shards, by their parents, so that no caller searches all shards for them."""

    def __init__(self, shards: Iterable[Shard] = ()) -> None:
        self._by_parent: dict[str, dict[str, Shard]] = {}
        for shard in shards:
            self.add(shard)

    def add(self, shard: Shard) -> None:
        """Add a shard that is known from now on."""
        for parent in parent_keys(shard):
            self._by_parent.setdefault(parent, {})[shard.key] = shard

    def remove(self, shard: Shard) -> None:
        """Forget a shard."""
        for parent in parent_keys(shard):
            siblings = self._by_parent.get(parent, {})
            siblings.pop(shard.key, None)
            if not siblings:
                self._by_parent.pop(parent, None)

    def of(self, parent: str) -> list[Shard]:
        """Return the known children of a parent (`Shard.key`)."""
        return list(self._by_parent.get(parent, {}).values())


# StreamList holds the streams that a job reads now. The list may be read again while the job runs (S10).

Look = Callable[[], Awaitable[Iterable[str]]]
"""Returns the names of the streams that should be read from now on. It keeps the last good list itself, and raises nothing."""


class StreamList(Sequence[str]):
    """Owns the names of the streams that are read now. Without `look` they stay the same."""

    def __init__(self, names: Iterable[str], look: Look | None = None, interval_seconds: float = 60.0) -> None:
        self._names = tuple(names)
        self._look = look
        self._interval = interval_seconds

    @property
    def is_fixed(self) -> bool:
        """Whether the streams stay the same."""
        return self._look is None

    async def run(self, on_look: Callable[[], Awaitable[None]]) -> None:
        """Read the list again and again. `on_look` is called each time, so that failed steps are tried again."""
        while self._look is not None:
            await asyncio.sleep(self._interval)
            self._names = tuple(await self._look())
            await on_look()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, stream: object) -> bool:
        return stream in self._names

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._names[index]


TOTALS: dict[str, Callable[[ShardEntry], int]] = {
    "skipped_records": attrgetter("metrics.skipped_records"),
    "dead_letters": attrgetter("metrics.dead_letters"),
    "late_after_idle": attrgetter("emission.late_after_idle"),
    "late_after_takeover": attrgetter("emission.late_after_takeover"),
}
"""Counters whose sum since the worker's start is reported."""


# MissingShards finds out whether a shard that a listing lacks has expired, or is only missing in that listing (S2,
# S5).

ShardExists = Callable[[Shard], Awaitable[bool | None]]
"""Returns whether the source still has a shard, by asking for the shard and not for a listing; None if the source does not tell."""

LISTINGS_UNTIL_EXPIRED = 3
"""If the source does not tell, a shard has expired when it was missing in this many listings in a row."""
PARALLEL_CALLS = 8

log = logging.getLogger("recordpublisher.discovery")


class MissingShards:
    """Owns what is known about the shards that the last listing of their stream lacked.

    ListShards is eventually consistent: a listing may lack a shard that an earlier one had, or a parent whose child it
    shows. Such a shard does not count as expired until the service cannot find it. Otherwise its children would be read
    too early, and the shard itself twice.
    """

    def __init__(self, exists: ShardExists | None = None) -> None:
        self._exists = exists
        self._missed: dict[str, int] = {}
        """How many listings in a row lacked each shard."""
        self._expired: set[str] = set()

    def is_expired(self, key: str) -> bool:
        """Return whether a shard that is not listed is past retention."""
        return key in self._expired

    async def check(self, missing: Collection[str], streams: Iterable[str]) -> None:
        """Check the shards `missing` (`Shard.key`) that new listings of `streams` lack.

        Shards already found to be expired are not checked again.
        """
        checked = {f"{stream}/" for stream in streams}
        self._expired = {key for key in self._expired if key in missing or _prefix(key) not in checked}
        self._missed = {
            key: count for key, count in self._missed.items() if key in missing or _prefix(key) not in checked
        }
        slots = asyncio.Semaphore(PARALLEL_CALLS)
        await asyncio.gather(*(self._check(key, slots) for key in sorted(missing) if key not in self._expired))

    async def _check(self, key: str, slots: asyncio.Semaphore) -> None:
        exists = None
        if self._exists is not None:
            async with slots:
                stream, _, shard_id = key.rpartition("/")
                exists = await self._exists(Shard(stream, shard_id))
        self._missed[key] = 0 if exists else self._missed.get(key, 0) + 1
        if exists is False or self._missed[key] >= LISTINGS_UNTIL_EXPIRED:
            del self._missed[key]
            self._expired.add(key)
            log.info("shard %s is no longer listed: it is past retention", key, extra=about(key))


def _prefix(key: str) -> str:
    return key[: key.rfind("/") + 1]


# OwnedShards adds the new shards that this process reads, and removes those that are gone (S3, S5).


class OwnedShards:
    """Owns what is known of shards that this worker does not read now.

    These are shards that a listing lacks, and shards of streams that left the list of streams.
    """

    def __init__(
        self,
        table: ShardTable,
        discovery: ShardDiscovery,
        missing: MissingShards,
        is_ours: Callable[[Shard], bool],
        clock: Clock,
    ) -> None:
        self._table = table
        self._discovery = discovery
        self._missing = missing
        self._unlisted_states: dict[str, ShardState] = {}
        """The restored states of shards that the first listing lacked."""
        self._kept_states: dict[str, ShardState] = {}
        """The states of this worker's shards whose stream is no longer read (S10)."""
        self._is_ours = is_ours
        self._clock = clock

    @property
    def kept_states(self) -> dict[str, ShardState]:
        """The states of shards that are not read now, which all snapshots contain: they may be read later (S5, S10)."""
        unlisted = self._unlisted_states.items()
        return {**{key: state for key, state in unlisted if not self._missing.is_expired(key)}, **self._kept_states}

    def add_initial(
        self, listed: Iterable[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Add the shards of a first listing, each with its state. `unlisted` are restored states of shards that the listing lacks.

        If such a shard's stream is not read, its state is used when the stream comes into the list.
        """
        self._unlisted_states |= unlisted
        opened = self._discovery.opened
        self._table.mark_finished(key for key, state in unlisted.items() if state.ended and stream_of(key) in opened)
        shards = self._table.add_listed(listed)
        self._table.mark_finished(shard.key for shard in shards if states[shard.key].ended and not self._is_ours(shard))
        for stream in {shard.stream for shard in shards}:
            self._table.update_listing(stream, [shard for shard in shards if shard.stream == stream])
        for shard in shards:
            self._add_if_ours(shard, states[shard.key])

    def add_new(self, shards: Iterable[Shard]) -> None:
        """Add shards that were found later. They are read from TRIM_HORIZON (S3), unless they have restored state."""
        fresh = ShardState(StartingPosition.trim_horizon())
        for shard in self._table.add_listed(shards):
            self._add_if_ours(shard, self._unlisted_states.pop(shard.key, fresh))

    def known_states(self, stream: str) -> dict[str, ShardState]:
        """Return the known states of a stream that is not read, by `Shard.key`."""
        known = {**self._unlisted_states, **self._kept_states}
        return {key: state for key, state in known.items() if stream_of(key) == stream}

    def add_stream(
        self, listed: Sequence[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Add the shards of a stream that was not read, as `add_initial` does."""
        gone = {shard.key for shard in listed} | {key for key in unlisted if self._missing.is_expired(key)}
        self._kept_states = {key: state for key, state in self._kept_states.items() if key not in gone}
        self.add_initial(listed, states, unlisted)

    def remove_stream(self, stream: str) -> None:
        """Remove every shard of a stream that is no longer read. Keep the states of this worker's shards, unless the stream was deleted."""
        states = self._table.remove_stream(stream)
        if stream not in self._discovery.deleted:
            self._kept_states |= states
            return
        self._discovery.deleted.discard(stream)
        self._table.forget_finished(stream)
        for key in self.known_states(stream):
            self._unlisted_states.pop(key, None)
            self._kept_states.pop(key, None)

    async def apply_listing(self, stream: str, listed: list[Shard]) -> None:
        """Apply a complete listing of a stream: add new shards, remove expired ones (S5)."""
        self.add_new(listed)
        await self._missing.check(self._table.update_listing(stream, listed), (stream,))
        for key in self._table.removable():
            self._table.remove(key)

    def _add_if_ours(self, shard: Shard, state: ShardState) -> None:
        if shard.key not in self._table and self._is_ours(shard):
            self._table.add(shard, state, owned_since_ms=self._clock.now_ms())
