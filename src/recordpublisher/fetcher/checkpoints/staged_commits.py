"""Commits the rows that a `CommittingSink` has staged: one conditional write stores the positions and names the staged items (S6, E1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import FencedError, RetriesExhaustedError, StateError, StoreUnavailableError
from recordpublisher.publishers.safe_text import few_of

from ..conditional_store import ConditionalStore, ConflictError
from ..sink import CommitNumber, CommittingSink, Staged
from .committing_calls import CommittingCalls


class Commits:
    """Commits what a `CommittingSink` has staged, for one run of a worker.

    It owns the *entry*: the stored document of this worker, which has the positions and names the staged items that belong to them. Staged
    items are durable and not visible yet. Writing the entry commits them, and the sink then publishes them (makes them visible).

    A write of the entry that got no answer is undecided: it may have taken effect, or may still do so. The same value is written again
    until the outcome is known, so that nothing is committed twice or late.

    `settle` and `commit` must not overlap. `stage` and `publish` may be called while they run.

    - `name`: the name of the entry in `store`.
    - `writer`: the name of the job and the worker in the numbers of commits (`CommitNumber.writer`).
    - `version`: version of the stored entry, or None if there is none.
    - `number`: the last number that was used before. The commits of this worker have higher numbers.
    - `positions`: the positions in the stored entry.
    """

    def __init__(
        self,
        sink: CommittingSink,
        store: ConditionalStore,
        name: str,
        writer: str,
        *,
        version: str | None = None,
        number: int = 0,
        positions: Any = None,
        counts: CommitCounts | None = None,
    ) -> None:
        self._sink = CommittingCalls(sink)
        self._store = store
        self._name = name
        self._writer = writer
        self._version = version
        self._number = number
        self._staged: list[Staged] = []
        self._unpublished: list[Staged] = []
        self._counts = counts or CommitCounts()
        self._records = self._counts.records
        self._positions = positions
        self._undecided: _Write | None = None
        self._publishing = asyncio.Lock()

    @property
    def is_undecided(self) -> bool:
        """Whether a commit got no answer, so that it is not known whether it was stored."""
        return self._undecided is not None

    @property
    def has_staged(self) -> bool:
        """Whether the sink has staged items that no commit names yet."""
        return bool(self._staged)

    async def settle(self) -> None:
        """Find out the outcome of a commit that got no answer, by repeating it. Call this before each commit.

        If at least `MOST_UNPUBLISHED` commits are not published yet, publish them.

        Raises: FencedError if another process has replaced this one; StoreUnavailableError if the store cannot be reached now; StateError
        if the commit cannot be stored.
        """
        if self._undecided is not None:
            await self._decide(self._undecided)
        if len(self._unpublished) >= MOST_UNPUBLISHED:
            await self.publish()

    async def stage(self, records: int = 0) -> None:
        """Let the sink stage the written records, so that the next commit includes them.

        `records`: number of records written so far.

        Raises: StoreUnavailableError if the destination cannot be reached now (the rows then stay in the sink); the other errors of the
        sink.
        """
        self._number += 1
        self._records = records
        try:
            staged = await self._sink.stage(CommitNumber(self._writer, self._number))
        except RetriesExhaustedError as error:
            raise StoreUnavailableError(str(error)) from error
        if staged is not None:
            self._staged.append(staged)

    async def commit(self, value_of: MakeEntry, positions: Any, *, names_staged: bool = True) -> None:
        """Write the entry (the document with the positions), which commits the staged items that it names. Call `settle` before.

        - `value_of`: returns the content of the entry. It is called before the first await, so that the entry has the state at the time of
          the call.
        - `positions`: the positions as plain JSON, in the format of the entry.
        - `names_staged`: if False, the entry commits no staged items, and names only items of earlier commits.

        Raises: the errors of `settle`.
        """
        if self._undecided is not None:
            raise AssertionError("the outcome of the last commit is not known: call `settle` first")
        self._number += 1
        staged = tuple(self._staged) if names_staged else ()
        if self._sink.can_take_back:
            staged = tuple(replace(each, before=self._positions) for each in staged)
        value = value_of(self._number, (*self._unpublished, *staged))
        write = self._undecided = _Write(
            value, staged, self._records if names_staged else self._counts.records, positions
        )
        self._counts.on_begun(f"{self._name} in {self._store.place}")
        await self._decide(write)

    async def publish(self) -> None:
        """Make committed items visible, in the order of their commits.

        Raises: FencedError if another process has replaced this one; StoreUnavailableError if the destination cannot be reached now;
        StateError if a staged item is missing.
        """
        async with self._publishing:
            if committed := tuple(self._unpublished):
                try:
                    await self._sink.publish(committed)
                except StoreUnavailableError:
                    raise
                except StateError:
                    # A process that has replaced this worker may have published the items and deleted their files.
                    await self._check_owned()
                    raise
                del self._unpublished[: len(committed)]

    async def _check_owned(self) -> None:
        stored = await self._store.get(self._name)
        undecided = self._undecided
        is_ours = undecided is not None and stored is not None and stored.value == undecided.value
        if not is_ours and (stored is None or stored.version != self._version):
            raise self._fenced()

    def _fenced(self) -> FencedError:
        return FencedError(
            f"{self._name} in {self._store.place} was written by another process, which has replaced this one, or "
            "by a reset of the positions. This process stops, and the records that it had not committed are read again"
        )

    async def _decide(self, write: _Write) -> None:
        try:
            version = await self._sink.commit(self._store, self._name, write.value, self._version, write.staged)
        except ConflictError as error:
            if error.current is None or error.current.value != write.value:
                raise self._fenced() from error
            version = error.current.version
        except RetriesExhaustedError as error:
            raise StoreUnavailableError(str(error)) from error
        self._version, self._undecided, self._positions = version, None, write.positions
        self._counts.on_stored(write.staged, write.records)
        self._unpublished += write.staged
        del self._staged[: len(write.staged)]


class CommitCounts(msgspec.Struct):
    """Counts and times of the commits of a `CommittingSink`.

    In a group they cover all workers that this process has been, one after another.

    - `files`, `size`: number of files of the last commit that had records, and their bytes.
    - `age_ms`: time since that commit was stored.
    - `records`: number of records that were written to the sink when it staged the items of its last commit.
    - `undecided`: the name and place of the entry (the document with the positions), while a write of it has no answer; otherwise None.
    """

    clock: Clock = msgspec.field(default_factory=SystemClock)
    files: int = 0
    size: int = 0
    records: int = 0
    undecided: str | None = None
    _stored: float | None = None

    @property
    def age_ms(self) -> int | None:
        """Time since the last commit with records was stored (ms); None if no commit of this process had records."""
        return None if self._stored is None else round((self.clock.monotonic() - self._stored) * 1000)

    def on_begun(self, entry: str) -> None:
        """Note that a write of this entry (name and place) has been sent and not answered yet."""
        self.undecided = entry

    def on_stored(self, staged: Sequence[Staged], records: int) -> None:
        """Count a commit that was stored.

        - `staged`: the items that were committed.
        - `records`: number of records that were written to the sink when these items were staged.
        """
        self.undecided, self.records = None, records
        if staged:
            self.files, self.size = sum(each.files for each in staged), sum(each.size for each in staged)
            self._stored = self.clock.monotonic()


log = logging.getLogger("recordpublisher.commits")
MOST_UNPUBLISHED = 3
"""If this many commits are not published yet, they are published before the next one: the stored document has room for only a few."""
MakeEntry = Callable[[int, Sequence[Staged]], bytes]
"""Returns the content of an entry that names the given staged items. The int is the number of the write, so contents are unique."""


class _Write(msgspec.Struct, frozen=True):
    value: bytes
    staged: Sequence[Staged]
    records: int
    positions: Any


async def warn_of_rows_of_other_positions(sink: CommittingSink, place: str) -> None:
    """Warn if the sink has rows of other writers.

    Called when this job has no positions in `place` yet. The positions of those rows must then be in another place.
    """
    if writers := await CommittingCalls(sink).writers():
        log.warning(
            "%s has rows that were written by %s, and %s has no positions: those of the rows are in another place. Records may be "
            "written twice. To continue after the rows, start with the flink.state.uri and flink.job.name of their job",
            sink.destination(),
            few_of(sorted(writers)),
            place,
        )
