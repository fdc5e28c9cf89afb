"""Finds data that killed processes of a job have staged and that no process will publish, and commits that cannot be published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from recordpublisher.fetcher.checkpoints.committing_calls import CommittingCalls
from recordpublisher.fetcher.checkpoints.snapshot_format import PARTS_PREFIX
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.position_documents import PositionPart
from recordpublisher.fetcher.leases.worker_sealing import seal_part, seal_worker
from recordpublisher.fetcher.sink import CommittingSink, Leftover, Sink, Staged, entry_store_of
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_dead_letter_sink, build_sink, build_store, check_properties
from ..host.plugin_loading import load_registry
from ..stores.by_location import missing_folder
from .job_positions import end_group


class JobLeftovers:
    """Finds leftovers of a job's sink and dead-letter sink: data that was staged, and that no process will publish. Never opens the sinks.

    Stored positions do not name data that a running job has just staged. Only its age distinguishes such data from leftovers.

    Raises: ConfigurationError if a property is invalid.
    """

    def __init__(self, properties: Properties) -> None:
        registry = load_registry()
        check_properties(registry, properties)
        sink = build_sink(registry, properties)
        sinks = (sink, build_dead_letter_sink(registry, properties))
        self._sinks = [each for each in sinks if isinstance(each, CommittingSink)]
        self._stores: dict[Sink, list[ConditionalStore]] = {each: [] for each in sinks if each is not None}
        for each in self._sinks:
            if (entries := entry_store_of(each)) is not None:
                self._stores[each].append(entries)
        self._lease_settings = LeaseSettings(**values_of(LeaseSettings, properties))
        uri = properties.value(STATE_URI)
        self._state = None if uri is None or missing_folder(uri) is not None else build_store(registry, properties)
        if self._state is not None:
            self._stores[sink].append(self._state)

    async def find(self, before: float) -> Sequence[tuple[CommittingSink, Sequence[Leftover]]]:
        """Return the leftovers of each sink that were written before the time `before` (epoch seconds).

        Raises: StoreUnavailableError if a store does not answer; StateError if it cannot be read.
        """
        return [(sink, await self._find(sink, before)) for sink in self._sinks]

    async def unpublished(self) -> Sequence[UnpublishedCommits]:
        """Return the commits that stored positions name and that the sink's destination does not have. A running job publishes them soon.

        Raises: StoreUnavailableError if a store does not answer; StateError if it cannot be read.
        """
        return [
            each for sink in self._sinks for store in self._stores[sink] for each in await _unpublished_in(store, sink)
        ]

    async def take_back_commits(self, found: UnpublishedCommits) -> None:
        """Make the destination refuse the commits in `found`, and set the positions back to before them.

        In a group, each worker first gets the time of its lease to show by a heartbeat that it is running.

        Raises: StateError, naming the worker, if one is running; StateError if another process has changed the positions;
        StoreUnavailableError if a store does not answer.
        """
        place = self._state or found.store
        group = GroupStore(place, self._lease_settings.interval)
        table = await group.read_table()
        if table is None:
            raise StateError(
                f"{found.name} in {found.store.place} belongs to a worker whose lease table is not in {place.place}: set the "
                f"{STATE_URI.key} that the job has"
            )
        if table.document.alone is None:
            await end_group(group, self._lease_settings)
        else:
            await seal_worker(group, table.document.alone.worker)
        await take_back_commits(found)

    async def close(self) -> None:
        """Close the sinks and the stores."""
        for sink in self._stores:
            await sink.close()
        for store in chain(*self._stores.values()):
            await store.close()

    async def _find(self, sink: CommittingSink, before: float) -> list[Leftover]:
        calls = CommittingCalls(sink)
        listed = await calls.leftovers(())
        # Files may have been committed or published since the first listing. The second one leaves them out.
        in_stores = [await _named_in(store, calls.target()) for store in self._stores[sink]]
        named = [each for names in in_stores for staged in names.values() for each in staged]
        still = set(await calls.leftovers(named))
        return [left for left in listed if left.written < before and left in still]


class UnpublishedCommits(NamedTuple):
    """The commits that are not published and that the stored positions of one worker name.

    `name`: the name of the entry in `store` that has these positions.
    """

    sink: CommittingSink
    store: ConditionalStore
    name: str
    staged: Sequence[Staged]


async def take_back_commits(found: UnpublishedCommits) -> None:
    """Make the destination refuse commits that are not published, and set the positions back to before them.

    If a process of the job still runs, it can no longer commit. The caller has checked that no worker of a group is running
    (`JobLeftovers.take_back_commits`).

    Raises: StateError if another process has changed the positions; StoreUnavailableError if a store does not answer.
    """
    taken = await _take_back_of_worker(found)
    # The files are deleted, because a table forgets the number of a refused commit after a time. A process that wakes up later could
    # publish them then.
    lives = {each.number.writer.rpartition("/")[2] for each in taken}
    if lives:
        await CommittingCalls(found.sink).discard(lives.__contains__, ())


async def _take_back_of_worker(found: UnpublishedCommits) -> Sequence[Staged]:
    """Take back the unpublished commits of a worker, and return the items that were taken back.

    Only this worker's positions change, because no other worker acquires a shard before the shard's rows are published.
    """
    group, place = GroupStore(found.store), f"{found.name} in {found.store.place}"
    worker, _, number = found.name.removeprefix(PARTS_PREFIX).rpartition("/")
    await seal_part(group, worker, int(number))
    if (stored := await group.read_part(worker, int(number))) is None:
        raise StateError(f"{place} no longer exists, so its positions were not set back: list the leftovers again")
    part = stored.document
    taken = await CommittingCalls(found.sink).take_back(part.staged)
    if taken:
        kept = _of_others(part.staged, taken)
        positions = part.before_commit(taken[0].number, place)
        returned = replace(part, write=part.write + 1, positions=positions, staged=kept)
        await group.seal_part(returned, int(number), stored.version)
    return taken


def _of_others(staged: Sequence[Staged], taken: Sequence[Staged]) -> tuple[Staged, ...]:
    writers = {each.number.writer for each in taken}
    return tuple(each for each in staged if each.number.writer not in writers)


async def _unpublished_in(store: ConditionalStore, sink: CommittingSink) -> list[UnpublishedCommits]:
    calls = CommittingCalls(sink)
    return [
        UnpublishedCommits(sink, store, name, found)
        for name, staged in (await _named_in(store, calls.target())).items()
        if (found := await calls.unpublished(staged))
    ]


async def _named_in(store: ConditionalStore, target: str) -> dict[str, Sequence[Staged]]:
    """Return the items staged for `target` that the stored positions of workers name, by the name of the entry with the positions."""
    found = {}
    for name, value in (await store.list(PARTS_PREFIX)).items():
        part = PositionPart.from_bytes(value.value, f"{name} in {store.place}")
        found[name] = (part.target, part.staged)
    return {name: staged for name, (place, staged) in found.items() if staged and place in ("", target)}
