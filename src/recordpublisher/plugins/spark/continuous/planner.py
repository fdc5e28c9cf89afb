"""What the driver decides for a query that reads a spool: the next batch, its files, and what may be forgotten."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from dataclasses import dataclass, field, replace

from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StateError

from .admission import Limits, admitted
from .backlog import Backlog, Waiting
from .generation import generation_of, newest_generation
from .history import last_steps
from .identity import spool_id
from .kept import check_kept
from .names import READ, READER, failure_name, read_name
from .offset import SpoolOffset
from .purging import purge

LOG = logging.getLogger("recordpublisher.spark")
IDLE_SECONDS = 1.0
"""How often a query without news looks whether the fetchers have given up."""
SILENCE_SECONDS = 30.0
MOST_QUIET_STEPS = 64
"""So many steps without rows may wait for the next batch; then one passes them over."""


@dataclass(frozen=True, slots=True)
class SpooledFile:
    """A file that a task hands over."""

    name: str
    rows: int


@dataclass(slots=True)
class SpoolPlanner:
    """Owns what a query's driver remembers between batches; what must survive is in the offsets and in the spool."""

    store: ObjectStore
    clock: Clock
    retain: int
    """So many committed batches can be read again."""
    figures: dict[str, object] = field(default_factory=dict)
    """Of the last look, for progress reports."""
    _query: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _backlog: Backlog = field(init=False)
    _until: SpoolOffset | None = None
    _marked: int = 0
    _is_checked: bool = False
    _committed: deque[SpoolOffset] = field(default_factory=deque)
    _is_purging: bool = False
    _looked_at: float = 0.0
    _silent_since: float | None = None
    _has_warned: bool = False

    def __post_init__(self) -> None:
        self._backlog = Backlog(self.store)

    async def initial_offset(self) -> SpoolOffset:
        """Before everything."""
        return SpoolOffset(await spool_id(self.store), self._query)

    async def stop_here(self) -> None:
        """The run ends with what is in the spool now (Trigger.AvailableNow)."""
        newest = await newest_generation(self.store)
        spool = await spool_id(self.store)
        if newest is None:
            self._until = SpoolOffset(spool, "")
            return
        ends = await last_steps(self.store, newest)
        lanes = tuple(0 if end is None else end.number for end in ends)
        self._until = SpoolOffset(spool, "", generation=newest.number, lanes=lanes)

    async def next_offset(self, start: SpoolOffset, limits: Limits) -> SpoolOffset | None:
        """The end of the next batch; None: nothing to read now. Raises: StateError."""
        await self._check(start)
        await self._mark(start)
        waiting, skipped = await self._first_with_rows(start)
        if waiting.rows or skipped + len(waiting.steps) >= MOST_QUIET_STEPS:
            return await self._batch(start, waiting, limits)
        await self._look_after_the_fetchers(start)
        return None

    async def files(self, start: SpoolOffset, end: SpoolOffset) -> list[list[SpooledFile]]:
        """The files of a batch by lane: a function of the two offsets. From now on the spool is this query's.

        Raises: StateError when the spool is another query's, or has not all of them any more.
        """
        await self._check(end)
        stored = (await self.store.put_if_absent(READER, end.query.encode())).decode()
        if stored != end.query:
            raise _of_another_query()
        found: list[list[SpooledFile]] = []
        for number in range(start.generation, end.generation + 1):
            read = start.lanes if number == start.generation else await self._none_of(number)
            waiting = (await self._backlog.waiting(number, read)).until(end)
            if not waiting.reaches(end):
                raise StateError(
                    f"the spool has not all manifests of batch {end.batch} any more: was it tidied up by hand?"
                )
            found += [
                [SpooledFile(step.manifest.file, step.manifest.rows) for step in lane if step.manifest.file is not None]
                for lane in waiting.lanes
            ]
        return [lane for lane in found if lane]

    async def commit(self, end: SpoolOffset) -> None:
        """A batch is done for good: forget what batches long before it have read."""
        self._committed.append(end)
        if len(self._committed) <= self.retain or self._is_purging:
            return
        while len(self._committed) > self.retain:
            oldest = self._committed.popleft()
        self._is_purging = True
        try:
            await purge(self.store, oldest)
        except StateError as error:
            LOG.warning("old files of the spool cannot be removed: %s", error)
        finally:
            self._is_purging = False

    async def _check(self, known: SpoolOffset) -> None:
        """Once: whether the spool is the one that the checkpoint knows, and this query's."""
        if self._is_checked:
            return
        if await spool_id(self.store) != known.spool:
            raise StateError(
                "metadataLocation is not the spool that this checkpoint has read: it was deleted, or is another one. What the fetchers had "
                "read and the query had not is gone; begin with a new checkpointLocation and flink.stream.initpos"
            )
        owner = await self.store.get(READER)
        if owner is not None and owner.decode() != known.query:
            raise _of_another_query()
        await check_kept(self.store, known)
        self._is_checked = True

    async def _mark(self, start: SpoolOffset) -> None:
        """Tell the fetchers what was read; the name's number only grows, so that a driver of the past cannot take it back."""
        if start.batch <= self._marked:
            return
        name = read_name(start.batch)
        await self.store.put_if_absent(name, start.to_bytes())
        await self.store.delete(each for each in await self.store.names(READ) if each < name)
        self._backlog.forget(start)
        self._marked = start.batch

    async def _first_with_rows(self, start: SpoolOffset) -> tuple[Waiting, int]:
        """What waits in the first generation that has rows or goes on; and how many steps without rows lie before."""
        skipped = 0
        waiting = (await self._backlog.waiting(start.generation, start.lanes)).until(self._until)
        while waiting.is_over and not waiting.rows:
            if await generation_of(self.store, waiting.generation + 1) is None:
                break
            skipped += len(waiting.steps)
            number = waiting.generation + 1
            waiting = (await self._backlog.waiting(number, await self._none_of(number))).until(self._until)
        return waiting, skipped

    async def _batch(self, start: SpoolOffset, waiting: Waiting, limits: Limits) -> SpoolOffset | None:
        known = waiting
        if waiting.names_parents:
            known = await self._backlog.waiting(waiting.generation, waiting.read)
        lanes = admitted(waiting, known, limits, start.batch)
        if lanes == waiting.read and waiting.generation == start.generation:
            return None  # what waits has to wait for what is to come: an AvailableNow run ends before it
        end = replace(start, batch=start.batch + 1, generation=waiting.generation, lanes=lanes)
        taken = [step.manifest for step in waiting.until(end).steps]
        end = replace(end, records=start.records + sum(manifest.rows for manifest in taken))
        self._silent_since = None
        self.figures = {
            "batch": end.batch,
            "generation": end.generation,
            "lanes": len(end.lanes),
            "files": sum(manifest.file is not None for manifest in taken),
            "records": end.records,
            "waitingRecords": waiting.rows - sum(manifest.rows for manifest in taken),
            "oldestMs": self.clock.now_ms() - min((each.made_ms for each in taken), default=self.clock.now_ms()),
            "globalWatermark": max((each.watermark for each in taken if each.watermark is not None), default=None),
        }
        return end

    async def _none_of(self, number: int) -> tuple[int, ...]:
        generation = await generation_of(self.store, number)
        if generation is None:
            return ()
        return (0,) * generation.lanes

    async def _look_after_the_fetchers(self, start: SpoolOffset) -> None:
        """A query that waits says so when nobody fetches, and ends when the fetchers have given up or the spool was deleted."""
        now = self.clock.monotonic()
        if now - self._looked_at < IDLE_SECONDS:
            return
        self._looked_at = now
        newest = await newest_generation(self.store)
        if newest is None:
            await check_kept(self.store, start)
            self._silent_since = now if self._silent_since is None else self._silent_since
            if now - self._silent_since >= SILENCE_SECONDS and not self._has_warned:
                self._has_warned = True
                LOG.warning("nobody fetches into this spool")
            return
        reason = await self.store.get(failure_name(newest.number))
        if reason is not None:
            raise StateError(f"the fetchers have given up: {reason.decode()}")


def _of_another_query() -> StateError:
    return StateError(
        "metadataLocation is the spool of another query, or of this one with another checkpoint: every query needs its own, and checkpoint "
        "and spool are kept together or deleted together"
    )
