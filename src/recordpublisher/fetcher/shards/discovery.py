"""Lists the shards of the streams while the job runs (`ShardDiscovery`, S10), adds new shards, and removes shards that are gone.

`MissingShards` finds out whether a shard that a listing lacks has expired, or is only missing in that listing (S2, S5).
`OwnedShards` applies a listing to the shards of this process (S3, S5), and `StreamList` holds the streams that the job reads now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, overload

from recordpublisher.publishers.base import is_fault_of_plugin
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    RecordPublisherError,
    StreamNotFoundError,
)
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.safe_text import with_notes
from recordpublisher.publishers.shards import Shard, stream_of

from .shard_state import ShardState
from .shard_table import ShardTable

log = logging.getLogger("recordpublisher.discovery")
ListingHandler = Callable[[str, list[Shard]], Awaitable[None]]
"""Called with a stream and its complete listing."""


class ShardDiscovery:
    """Lists the shards of the job's streams. Keeps which streams are read, and which of them are known to be deleted.

    `streams`: the names of the streams. A `StreamList` may change while the job runs. Any other sequence stays the same (a fixed list).
    """

    def __init__(self, lister: ShardLister, streams: Sequence[str], interval_ms: int) -> None:
        self._lister = lister
        self.streams = streams if isinstance(streams, StreamList) else StreamList(streams)
        self._interval = interval_ms / 1000
        self.deleted: set[str] = set()
        self.opened = set(self.streams)
        """The streams that are read. A stream of the list may be missing here: it does not exist yet, could not be listed, or was added
        a moment ago.
        """
        self._has_listed = False
        self.not_found: set[str] = set()
        """Streams that the last listing of all streams did not find. One warning was logged for each."""

    async def list_all(self) -> list[Shard]:
        """Return every shard of every stream.

        A stream that does not exist is left out, with one warning, in two cases:

        - The list of streams may change.
        - The list is fixed, and an earlier call has found all of its streams, so the stream was deleted since then.

        Raises: StreamNotFoundError if no stream exists, or if the first call does not find all streams of a fixed list; any other error of
        a listing.
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
                    text = "%s; the job reads its other streams, and looks for this one again every flink.shard.discovery.intervalmillis"
                    log.warning(text, error, extra=log_extra(stream))
                self.opened.discard(stream)
                self.not_found.add(stream)
        self._has_listed = True
        return found

    def on_deleted(self, stream: str) -> None:
        """Mark a stream as deleted. It is read again when a stream of the same name exists."""
        self.deleted.add(stream)
        self.opened.discard(stream)

    async def list_stream(self, stream: str) -> list[Shard]:
        """Return every shard of one stream. Raises: StreamNotFoundError if the stream does not exist; KinesisError if the listing fails."""
        return await self._lister.list_shards(stream)

    @property
    def all_deleted(self) -> bool:
        """Whether every stream of a fixed list was deleted. No stream is then left to read."""
        return self.streams.is_fixed and bool(self.streams) and len(self.deleted) == len(self.streams)

    async def run(self, on_listing: ListingHandler, on_closed: Callable[[str], Awaitable[None]]) -> None:
        """List periodically. Return when no stream is left. A failed listing does not end the job, but a fault of a plugin does.

        - `on_listing`: called with a stream and its shards.
        - `on_closed`: called with each stream of a fixed list that is not read, because it was deleted. Streams of a list that may change
          are looked for whenever the list is read again.
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
            log.warning(
                "stream %s was deleted: it is read again if a stream of that name is created",
                stream,
                extra=log_extra(stream),
            )
            self.on_deleted(stream)
        except RecordPublisherError as error:
            if is_fault_of_plugin(error):
                raise
            line = "listing the shards of %s failed, next attempt in %g s: %s"
            if isinstance(error, FatalKinesisError):
                line = (
                    "the shards of %s cannot be listed, so new shards are found only when the last read of their parent names them "
                    "(ChildShards); next attempt in %g s: %s"
                )
            log.warning(line, stream, self._interval, with_notes(error), extra=log_extra(stream))


class ShardLister(Protocol):
    """Lists a stream's shards. Raises StreamNotFoundError if the stream does not exist."""

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return every shard that is still listed."""


ReadStreamNames = Callable[[], Awaitable[Iterable[str]]]
"""Returns the names of the streams that should be read from now on. If they cannot be read, it returns the last names, and raises
nothing.
"""


class StreamList(Sequence[str]):
    """The names of the streams that are read now. If `look` is given, it is called at each interval, and returns the names from then on."""

    def __init__(
        self, names: Iterable[str], look: ReadStreamNames | None = None, interval_seconds: float = 60.0
    ) -> None:
        self._names = tuple(names)
        self._look = look
        self._interval = interval_seconds

    @property
    def is_fixed(self) -> bool:
        """Whether the streams stay the same."""
        return self._look is None

    async def run(self, on_look: Callable[[], Awaitable[None]]) -> None:
        """Read the names again at each interval, until cancelled.

        `on_look` is called each time, even if the names have not changed. It tries steps again that have failed before.
        """
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


ShardExists = Callable[[Shard], Awaitable[bool | None]]
"""Asks the source for one shard, and returns whether it still has the shard; None if the source cannot tell."""

LISTINGS_UNTIL_EXPIRED = 3
"""A shard counts as past retention after this many listings in a row without it, if the source cannot tell whether it has the shard."""
PARALLEL_CALLS = 8


class MissingShards:
    """Decides which of the shards that a listing lacks are past retention.

    ListShards is eventually consistent: a listing may lack a shard that an earlier one had, or a parent whose child it shows. Therefore a
    shard counts as past retention only when the service cannot find the shard itself. Otherwise its children could be read before its own
    records.
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
        """Find out which of the shards in `missing` are past retention. New listings of `streams` lack these shards (`Shard.key`).

        Shards that were already found to be past retention are not checked again.
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
            log.info("shard %s is no longer listed: it is past retention", key, extra=log_extra(key))


def _prefix(key: str) -> str:
    return key[: key.rfind("/") + 1]


class OwnedShards:
    """Adds the shards that this process reads to the table of shards, and removes them from it.

    It also keeps the states of shards that are not read now, because they may be read later: shards that a listing lacks, and shards of
    streams that left the list of streams.
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
        """The states of this worker's shards whose stream is no longer read."""
        self._is_ours = is_ours
        self._clock = clock

    @property
    def kept_states(self) -> dict[str, ShardState]:
        """The states of shards that are not read now. Every snapshot contains them, because the shards may be read later."""
        unlisted = self._unlisted_states.items()
        return {**{key: state for key, state in unlisted if not self._missing.is_expired(key)}, **self._kept_states}

    def add_initial(
        self, listed: Iterable[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Add the shards of a first listing, each with its state.

        `unlisted`: the restored states of shards that the listing lacks. If the stream of such a shard is not read, its state is used when
        the stream is added to the list of streams.
        """
        # A shard of the listing is in the table from now on. If its restored state stayed here, snapshots would have it again after the
        # shard was read to its end and removed, and the next start would report a loss.
        elsewhere = {key: state for key, state in self._unlisted_states.items() if key not in states}
        self._unlisted_states = {**elsewhere, **unlisted}
        opened = self._discovery.opened
        self._table.mark_finished(key for key, state in unlisted.items() if state.ended and stream_of(key) in opened)
        shards = self._table.add_listed(listed)
        self._table.mark_finished(shard.key for shard in shards if states[shard.key].ended and not self._is_ours(shard))
        for stream in {shard.stream for shard in shards}:
            self._table.update_listing(stream, [shard for shard in shards if shard.stream == stream])
        for shard in shards:
            self._add_if_ours(shard, states[shard.key])

    def add_new(self, shards: Iterable[Shard]) -> None:
        """Add shards that were found while the job runs. A shard with restored state resumes there, any other begins at TRIM_HORIZON."""
        fresh = ShardState(StartingPosition.trim_horizon())
        for shard in self._table.add_listed(shards):
            self._add_if_ours(shard, self._unlisted_states.pop(shard.key, fresh))

    def known_states(self, stream: str) -> dict[str, ShardState]:
        """Return the states of the shards of a stream that the job does not read now, by `Shard.key`.

        The job has restored these states, or it has kept them when the stream left the list of streams.
        """
        known = {**self._unlisted_states, **self._kept_states}
        return {key: state for key, state in known.items() if stream_of(key) == stream}

    def add_stream(
        self, listed: Sequence[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Add the shards of a stream that is read from now on. The arguments are those of `add_initial`."""
        moved = states.keys() | unlisted.keys()
        self._kept_states = {key: state for key, state in self._kept_states.items() if key not in moved}
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
        """Apply a complete listing of a stream: add new shards, and remove shards that are past retention."""
        self.add_new(listed)
        # Restored shards that are past retention are missing in every listing. They must stay known as such, or snapshots would keep their
        # states for ever.
        unlisted = {key for key in self._unlisted_states if stream_of(key) == stream} - {each.key for each in listed}
        await self._missing.check(self._table.update_listing(stream, listed) | unlisted, (stream,))
        for key in self._table.removable_shards():
            self._table.remove(key)

    def _add_if_ours(self, shard: Shard, state: ShardState) -> None:
        if shard.key not in self._table and self._is_ours(shard):
            self._table.add(shard, state, owned_since_ms=self._clock.now_ms())
