"""ShardDiscovery lists the shards of every stream, at the start and periodically (S3). A lister makes the listings."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, overload

from recordpublisher.publishers.errors import FatalKinesisError, RecordPublisherError, StreamNotFoundError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.shards import Shard

ListingHandler = Callable[[str, list[Shard]], Awaitable[None]]
"""Called with a stream and its complete listing."""

log = logging.getLogger("recordpublisher.discovery")


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
        """List periodically. A failed listing never ends the job (S3). Return when the last stream was deleted.

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
        except FatalKinesisError as error:
            log.warning(
                "shards of %s may not be listed, reshards are found by ChildShards only: %s",
                stream,
                error,
                extra=about(stream),
            )
        except RecordPublisherError as error:
            line = "listing the shards of %s failed, next attempt in %.0f s: %s"
            log.warning(line, stream, self._interval, error, extra=about(stream))


# Finds parents, ancestors and children of shards.


def parent_keys(shard: Shard) -> list[str]:
    """Return `Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def parents_ended(parents: Iterable[str], is_ended: Callable[[str], bool]) -> bool:
    """Return whether a shard with these parents (`Shard.key`) may start (S2).

    It may start when the last record of each parent was emitted (after a merge: of both). `finished_ancestors` says
    what follows for the ancestors of a shard that has started. `is_ended` decides for one parent. An unknown parent
    means different things, so each caller decides:

    - A subtask (`ShardTable`): the parent may belong to another subtask, or not be listed yet. It has not ended before
      a subtask says so.
    - A group (`LeaseTable`): the parent may be listed later, so it has not ended.
    - A restored job (`initial_states.py`) and an offset of Spark (`source/batch_plan.py`): the parent was read before, or
      is past retention.
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
