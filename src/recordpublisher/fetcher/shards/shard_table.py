"""Keeps the shards of a worker, and decides which of them may start: a child of a split or merge starts after its parents (S2)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from recordpublisher.publishers.histogram import Histogram
from recordpublisher.publishers.shard_metrics import SUMMED_COUNTERS
from recordpublisher.publishers.shards import Shard, is_listing_older_than, stream_of

from ..global_watermark_rules import inherited_watermark
from ..settings import WAITS_FOR_EVERY_SHARD, IdleIntervals
from .lineage import Children, parent_keys, parents_ended, reachable
from .shard_entry import NO_LISTENER, ShardEntry, ShardListener
from .shard_state import ShardState


class ShardTable:
    """Keeps every shard that a listing or a parent has shown. Shards that this worker owns (reads) have a `ShardEntry`."""

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
        """Shards that the last listing no longer has, and that cannot be removed from the table yet."""
        self._finished_before: set[str] = set()
        """Shards that were read to their end and no longer have an entry. They are never added again."""
        self._removed: Counter[str] = Counter()
        """The sums of `SUMMED_COUNTERS` over shards that were removed."""
        self._has_others = has_others
        """Whether other processes read shards of the job.

        If so, a parent without an entry counts as ended, because a child has a lease only after its parents have ended.
        """
        self._is_expired = is_expired
        self._is_endless = is_endless
        self._idle_intervals = idle_intervals
        self.worker_read_durations = Histogram()
        """How long the successful GetRecords calls of all shards took (ms), including shards that were removed."""

    def set_listener(self, listener: ShardListener) -> None:
        """Set the listener that is notified of events of the shards that are added from now on."""
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
        """Return one of the counters `SUMMED_COUNTERS`, summed over all shards. Removed shards stay in the sum, so it never falls."""
        owned: int = sum(getattr(each.metrics, counter) for each in self._entries.values())
        return self._removed[counter] + owned

    def count(self, key: str, counter: str) -> None:
        """Add 1 to a counter of a shard (`Shard.key`), even if the shard was removed, because a sink may reject its records late."""
        if key in self._entries:
            self._entries[key].metrics.add(counter)
        else:
            self._removed[counter] += 1

    def add_listed(self, shards: Iterable[Shard]) -> list[Shard]:
        """Add listed shards, whichever worker owns them. Return the new ones. A shard that was read to its end before is not new."""
        fresh = [shard for shard in shards if shard.key not in self._listed and shard.key not in self._finished_before]
        for shard in fresh:
            self._remember(shard)
        return fresh

    def listed_shards(self) -> dict[str, Shard]:
        """Return every listed shard by key, whichever worker owns it."""
        return self._listed

    def children_of(self, parent: str) -> list[Shard]:
        """Return the listed children of a shard (`Shard.key`), whichever worker owns them."""
        return self._children.of(parent)

    def add(
        self, shard: Shard, state: ShardState, *, owned_since_ms: int | None = None, taken_over_below: int | None = None
    ) -> ShardEntry:
        """Add a shard that this worker reads from now on.

        - `owned_since_ms`: when this worker got the shard (epoch ms).
        - `taken_over_below`: the global watermark when this process acquired the shard from another one (epoch ms), else None.
        """
        entry = ShardEntry(
            shard,
            replace(state, parents=shard.parents),
            self._listener,
            owned_since_ms=owned_since_ms,
            taken_over_below=taken_over_below,
            idle_intervals=self._idle_intervals,
            worker_read_durations=self.worker_read_durations,
        )
        self._entries[shard.key] = entry
        self._remember(shard)
        self._listener.on_added(entry)
        return entry

    def own_children_of(self, parent: str) -> list[ShardEntry]:
        """Return the children of a shard (`Shard.key`) that this worker owns."""
        return [self._entries[child.key] for child in self.children_of(parent) if child.key in self._entries]

    def may_start(self, entry: ShardEntry) -> bool:
        """Return whether the shard was waiting for its parents and may start now, because they were read to their ends."""
        return entry.is_waiting and self.parents_finished(entry.shard)

    def parents_finished(self, shard: Shard) -> bool:
        """Return whether the last record of every parent was emitted.

        A parent past retention counts as emitted. A parent that is only missing in listings does not, because a later listing may show it.
        For example, the end of one parent of a merge may name the child before the other parent was listed.
        """
        return parents_ended(parent_keys(shard), lambda parent: self._is_finished(parent, shard))

    def inherited_watermark(self, shard: Shard) -> int | None:
        """Return the watermark at which a child starts: the lowest one of its parents that this worker has read."""
        return inherited_watermark(
            self._entries[key].state.watermark for key in parent_keys(shard) if key in self._entries
        )

    def mark_finished(self, keys: Iterable[str]) -> None:
        """Note that these shards (`Shard.key`) were read to their end before, according to the restored state. They have no entry."""
        self._finished_before.update(keys)

    def update_listing(self, stream: str, listed: Iterable[Shard]) -> set[str]:
        """Apply a complete listing of a stream. Return the shards that the listing lacks and that may have expired.

        These are this worker's ended shards, and parents for which shards of this worker wait. A single listing does not prove that they
        are past retention, so `MissingShards.check` then asks the service.
        """
        listed = list(listed)
        now = {shard.key for shard in listed}
        before = self._last_listing.get(stream, ())
        for shard in listed:
            if shard.key not in before and shard.key in self._listed:
                self._listener.on_listed(shard, is_in_listing=True)
            self._update_closed(shard)
        missing = self._last_listing.get(stream, set()) - now
        # A listing may be older than the one before it. A shard that is younger than every listed one is not gone. If it were removed, the
        # next listing would show it as new, and it would be read again from its start.
        young = {key for key in missing if key in self._listed and is_listing_older_than(self._listed[key], listed)}
        self._unlisted = (self._unlisted | missing) - now - young
        self._last_listing[stream] = now | young
        of_stream = [entry for entry in self if entry.shard.stream == stream]
        ended = {entry.key for entry in of_stream if entry.has_ended}
        waiting = [entry.shard for entry in of_stream if entry.is_waiting and entry.key in now]
        awaited = {key for shard in waiting for key in parent_keys(shard)}
        return (ended & self._unlisted) | (awaited - now - self._finished_before - self._entries.keys())

    def removable_shards(self) -> list[str]:
        """Return the shards that may be removed from the table now. There are three cases:

        - A shard of another worker that the listing lacks: at once, because it does not decide whether its children may start.
        - A shard of this worker that the listing lacks: when it has ended, is past retention, and no child in the table waits for it.
        - A shard of this worker that the publisher reads from an archive, and that no listing has: when it has ended and its children have
          started. A restart concludes from the children that the shard was read. If it stayed, snapshots would grow with the archive.
        """
        awaited = {key for entry in self if entry.is_waiting for key in parent_keys(entry.shard)}
        archived = [entry.key for entry in self if entry.shard.is_unlisted and self._is_succeeded(entry)]
        return [*(key for key in self._unlisted if self._may_be_removed(key, awaited)), *archived]

    def is_exhausted(self, streams: Collection[str]) -> bool:
        """Return whether no more records of these streams can come. Only sources of a finite size become exhausted.

        That is so when listings have shown every shard as closed, and this worker has read its shards to their ends. A stream without
        shards may get some later. A Kinesis stream always has an open shard, even if an old listing shows none.

        An open shard of an archive counts as closed. If the archive grows during the run, the rest of the shard and its children are left
        to a later run.
        """
        all_closed = bool(self._listed) and all(shard.closed or shard.may_grow for shard in self._listed.values())
        if not all_closed or (any(not entry.has_ended for entry in self) and not self._is_left_for_later_run()):
            return False
        listed = {shard.stream for shard in self._listed.values()}
        return listed.issuperset(streams) and not any(map(self._is_endless, listed))

    def states(self) -> dict[str, ShardState]:
        """Return the state of every shard that this worker owns, for a snapshot."""
        return {entry.key: entry.snapshot_state for entry in self}

    def remove(self, key: str) -> None:
        """Remove a shard, whether this worker reads it or it is only listed."""
        if key in self._entries:
            if self._entries[key].has_ended:
                self._finished_before.add(key)
            self._remove_entry(key)
        if key in self._listed:
            self._children.remove(self._listed.pop(key))
        self._unlisted.discard(key)

    def remove_stream(self, stream: str) -> dict[str, ShardState]:
        """Remove every shard of a stream that is no longer read. Return how far each shard of this worker was emitted."""
        states = {entry.key: entry.snapshot_state for entry in self if entry.shard.stream == stream}
        for key in states:
            self._remove_entry(key)
        for shard in [shard for shard in self._listed.values() if shard.stream == stream]:
            self._children.remove(self._listed.pop(shard.key))
        self._last_listing.pop(stream, None)
        return states

    def forget_finished(self, stream: str) -> None:
        """Forget which shards of a deleted stream were read to their end. A new stream of this name has other shards with the same ids."""
        self._finished_before = {key for key in self._finished_before if stream_of(key) != stream}

    def _remember(self, shard: Shard) -> None:
        if shard.key not in self._listed:
            self._listed[shard.key] = shard
            self._children.add(shard)
            self._listener.on_listed(shard, is_in_listing=False)

    def _update_closed(self, listed: Shard) -> None:
        """Note that a shard that was listed as open is closed now. A listing that still shows it as open is older, and is ignored."""
        known = self._listed.get(listed.key)
        if listed.closed and known is not None and not known.closed:
            self._listed[listed.key] = closed = replace(known, closed=True)
            self._children.add(closed)

    def _remove_entry(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._removed.update({counter: getattr(entry.metrics, counter) for counter in SUMMED_COUNTERS})
        entry.remove()
        self._listener.on_removed(key)

    def _may_be_removed(self, key: str, awaited: set[str]) -> bool:
        own = self._entries.get(key)
        return own is None or (own.has_ended and key not in awaited and self._is_expired(key))

    def _is_succeeded(self, entry: ShardEntry) -> bool:
        """Return whether a shard has ended and this worker reads each of its children.

        Children in other workers are not enough, because these workers may not know yet that the shard has ended.
        """
        children = [self._entries.get(child.key) for child in self.children_of(entry.key)]
        are_read = [child is not None and not child.is_waiting for child in children]
        return entry.has_ended and bool(are_read) and all(are_read)

    def _is_left_for_later_run(self) -> bool:
        """Return whether each shard that has not ended waits for the rest of a shard that has ended for this run only."""
        left = [entry for entry in self if not entry.has_ended]
        if not all(entry.is_waiting for entry in left):
            return False
        paused = [entry.key for entry in self if entry.has_ended_for_now]
        waiting = reachable(paused, lambda key: [child.key for child in self.children_of(key)])
        return all(entry.key in waiting for entry in left)

    def _is_finished(self, key: str, child: Shard) -> bool:
        own = self._entries.get(key)
        if own is not None:
            return own.has_ended and not own.has_ended_for_now
        if key in self._finished_before or self._has_others:
            return True
        was_listed = child.key in self._last_listing.get(child.stream, ())
        return was_listed and key not in self._listed and self._is_expired(key)
