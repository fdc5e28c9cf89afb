"""Lets a job that has positions continue from another place: the oldest record, the tip, or a time. `reset_positions` is public."""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from recordpublisher.consumer.event_time import EARLIEST_PLAUSIBLE_MS
from recordpublisher.fetcher.checkpoints.shard_starts import Starts, initial_states, shards_newer_than_listing
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.leases.group_store import MissingPositionsError
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError, StateError
from recordpublisher.publishers.initial_position import START_FORMS, named_start, refuse_future
from recordpublisher.publishers.kinesis.ports import ListingPort
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION, LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import Shard, stream_name, stream_of

from .job_positions import ImportedPosition, JobPositions, imported_states, job_and_lister

T = TypeVar("T")
MOST_LISTINGS = 10
"""A reset lists a stream at most this many times while the listing lacks a shard that exists."""
LISTING_PAUSE_SECONDS = 1.0
"""Approximate pause between two of these listings (seconds)."""


async def reset_positions(
    properties: Mapping[str, object],
    to: datetime | timedelta | str | float,
    *,
    shard_ids: Collection[str] = (),
    dry_run: bool = False,
) -> dict[str, SequenceNumber | StartingPosition | None]:
    """Let a job that was stopped continue from another position, as `recordpublisher positions reset` does.

    - `properties`: the job's properties, as `recordpublisher run` takes them.
    - `to`: `"TRIM_HORIZON"`, `"LATEST"`, an age (`"1h"` or a timedelta), or a time: a datetime or ISO-8601 with a zone, epoch seconds or
      milliseconds.
    - `shard_ids`: reset only these shards, by id in all streams, or as `stream/shard`. Default: every shard.
    - `dry_run`: write nothing.

    Return where each shard will be read, by `stream/shard`: after a sequence number, or from a start. The value is None if the shard was
    read to its end. Later writes of running processes fail.

    Raises: ConfigurationError if a property, `to` or a shard id is invalid; KinesisError if the shards cannot be listed; StateError in
    these cases:

    - The job has no positions.
    - A worker of the group is running.
    - The listing of a stream has no shard, or lacks one that exists.
    """
    start, properties = reset_target(to, "to"), Properties(properties)
    async with job_and_lister(properties) as (job, lister, streams):
        reset = PositionsReset(job, lister, streams, properties, start, shard_ids)
        plan = await reset.plan()
        if not dry_run:
            await reset.apply(plan)
    states = imported_states(plan)
    return {key: None if state.ended else state.position or state.start for key, state in states.items()}


class ResetLister(ListingPort, Protocol):
    """Lists shards, and reports whether a shard exists although a listing lacks it."""

    async def shard_exists(self, shard: Shard) -> bool | None:
        """Return whether the source still has the shard, or None if that is not known."""

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time before which the records of the stream have expired (epoch ms), or None if it is not known."""


@dataclass(frozen=True, slots=True)
class PositionsReset:
    """Makes a job continue from another position.

    - `lister`: lists the shards of the job's streams.
    - `shard_ids`: the shards to reset, by id in all streams, or as `stream/shard`; empty for every shard.
    """

    job: JobPositions
    lister: ResetLister
    streams: Sequence[str]
    properties: Properties
    start: StartingPosition
    shard_ids: Collection[str] = ()

    async def plan(self) -> list[ImportedPosition]:
        """Return the positions from which the job would continue, for all shards. A `note` marks the shards that are reset.

        Raises: StateError if the job has no positions, or if the listing of a stream has no shard or lacks one that exists;
        ConfigurationError if a shard is unknown, or the time is in the future.
        """
        try:
            stored = (await self.job.load()).merged
        except MissingPositionsError:  # Every shard gets a position, so none needs the old one.
            if self.shard_ids:
                raise
            stored = None
        if not self.job.are_stored_by_the_sink:
            self.job.check_writable()
        if stored is not None and not stored.shards:
            raise StateError(
                f"the job has stored no positions in {self.job.place}, so there are none to reset: it starts where "
                f"{INITIAL_POSITION.key} says"
            )
        stored = stored or RestoredState({})
        known = {key: ImportedPosition(key, "", state) for key, state in stored.shards.items()}
        parents: dict[str, tuple[str, ...]] = {}
        listed_names: set[str] = set()
        for stream in self.streams:
            listed = await self._list(stream, stored)
            names = {shard: (shard.shard_id, f"{stream_name(stream)}/{shard.shard_id}") for shard in listed}
            listed_names |= {name for both in names.values() for name in both}
            chosen = [
                shard for shard in listed if not self.shard_ids or not set(names[shard]).isdisjoint(self.shard_ids)
            ]
            start = await self._start_of(stream)
            past = await self._past_retention(stream, start)
            fresh = initial_states(chosen, RestoredState({}), Starts(start))
            # With a start at the tip, only records after the tip are wanted. So a gap counts as a loss only from the time of the tip on
            # (P3, S5).
            seen_ms = start.timestamp_ms if self.start.is_tip else None
            children = {f"{stream_name(stream)}/{parent}" for shard in listed for parent in shard.parents}
            for key, state in fresh.items():
                note = "its children keep their positions" if self.shard_ids and key in children else f"reset{past}"
                known[key] = ImportedPosition(key, "", replace(state, seen_ms=seen_ms), note)
            parents |= {shard.key: shard.parents for shard in chosen}
            if not self.shard_ids:
                known |= _expired(known, listed, stored, stream_name(stream))
        if unknown := sorted(set(self.shard_ids) - listed_names):
            raise ConfigurationError(
                "--shard",
                unknown[0],
                f"a shard of {', '.join(map(stream_name, self.streams))}, by its id or as stream/shard",
            )
        unread = {key for key, position in known.items() if position.is_stored and not position.state.ended}
        for key in parents.keys() & unread:
            # The workers of a group know only from the positions that a shard waits for its parents (S2).
            is_waiting = any(f"{stream_of(key)}/{parent}" in unread for parent in parents[key])
            state = replace(known[key].state, parents=parents[key], waiting=is_waiting)
            known[key] = replace(known[key], state=state)
        return sorted(known.values(), key=lambda position: position.shard)

    async def apply(self, plan: Sequence[ImportedPosition]) -> None:
        """Store the planned positions. Later writes of running processes fail. Raises: StateError if a worker of the group is running."""
        await self.job.store_over(imported_states(plan))

    async def _list(self, stream: str, restored: RestoredState) -> list[Shard]:
        """Return the shards of a stream. List it again while a shard is missing that may exist, because its position would be dropped."""
        missing, found = MissingShards(self.lister.shard_exists), dict[str, Shard]()
        for _ in range(MOST_LISTINGS):
            listed = await self._retried(functools.partial(self.lister.list_shards, stream))
            if not listed:
                raise StateError(f"the listing of {stream} has no shard, so nothing is reset: try again later")
            if self.shard_ids:  # No other shard's position is forgotten.
                return listed
            found |= {shard.key: shard for shard in listed}
            lacking = _lacking(restored.shards, [*found.values()], restored, stream_name(stream))
            await missing.check(lacking, (stream_name(stream),))
            unclear = [key for key in lacking if not missing.is_expired(key)]
            if not unclear:
                return [*found.values()]
            await asyncio.sleep(LISTING_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311 - jitter
        raise StateError(
            f"the listing of {stream} lacks {unclear[0]}, which exists, so nothing is reset: try again later"
        )

    async def _start_of(self, stream: str) -> StartingPosition:
        """Return the start for a stream. The tip becomes the current time, so that records that arrive before the job starts are read.

        Raises: ConfigurationError if the time is in the future.
        """
        if self.start.type is PositionType.TRIM_HORIZON:
            return self.start
        now = await self._retried(functools.partial(self.lister.server_time_ms, stream))
        if (at := self.start.timestamp_ms) is None:
            return self.start.pinned_at(now)
        refuse_future("to", at, now, 1_000)  # The service's clock has whole seconds.
        return self.start

    async def _past_retention(self, stream: str, start: StartingPosition) -> str:
        """Return a clause that says since when the stream has records, if the time of the start is before that, else ""."""
        if self.start.is_tip or (at := start.timestamp_ms) is None:
            return ""
        oldest_ms = None
        with suppress(RecordPublisherError):  # It is only a note.
            oldest_ms = await self._retried(functools.partial(self.lister.oldest_retained_ms, stream))
        if oldest_ms is None or at >= oldest_ms:
            return ""
        return f"; earlier records than {iso_time(oldest_ms)} are past retention"

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, LIST_SHARDS_RETRIES.policy(self.properties))


def _expired(
    known: Mapping[str, ImportedPosition], listed: Sequence[Shard], restored: RestoredState, stream: str
) -> dict[str, ImportedPosition]:
    """Return the shards that a stream no longer lists, without a position to store.

    With a position, each start of the job would report records of these shards as lost.
    """
    return {
        key: replace(known[key], note="it has expired, and is forgotten", is_stored=False)
        for key in _lacking(known, listed, restored, stream)
    }


def reset_target(to: datetime | timedelta | str | float, name: str = "--to") -> StartingPosition:
    """Return the start that `to` gives.

    Raises: ConfigurationError, naming the setting `name`, if `to` is invalid or before the year 2000.
    """
    start = named_start(name, to)
    if start.timestamp_ms is not None and start.timestamp_ms < EARLIEST_PLAUSIBLE_MS:
        raise ConfigurationError(
            name, to, START_FORMS, reason=f"that is {iso_time(start.timestamp_ms)}, before the year 2000"
        )
    return start


def _lacking(known: Iterable[str], listed: Sequence[Shard], restored: RestoredState, stream: str) -> list[str]:
    """Return the known shards of a stream that the listing should have and lacks. Shards that are newer than the listing are left out."""
    there = {shard.key for shard in listed} | set(shards_newer_than_listing(listed, restored, [stream]))
    return [key for key in known if stream_of(key) == stream and key not in there]
