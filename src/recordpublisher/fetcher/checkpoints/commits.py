"""Commits the rows that a sink has staged, together with the positions, by one write of an entry (S6, E1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from recordpublisher.publishers.clock import Clock, SystemClock, wait_at_most
from recordpublisher.publishers.errors import FencedError, RetriesExhaustedError, StateError, StoreUnavailableError

from ..conditional_store import ConditionalStore, ConflictError
from ..sink import CommitNumber, CommittingSink, Staged


class Commits:
    """Owns the entry of one run of a worker (its life): the stored document that has the positions and names the staged items.

    This includes the entry's version, the number of the last commit, the write without an answer (undecided), and the commits
    that are not published yet.

    A write without an answer may have taken effect, or may still do so. It is repeated unchanged until its outcome is known: it
    finds either its own value or the value of another process. So nothing is committed twice, and nothing of an ended life is
    committed later. If the write were abandoned and its rows written with the next commit, rows could be written twice.

    `settle` and `commit` must not overlap; `stage` and `publish` may be called while they run.

    - `version`: version of the stored entry, or None if there is none.
    - `number`: the last number that was used before; the commits of this life have higher numbers.
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
        self._sink = sink
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
        """Whether it is unknown if the last commit was stored."""
        return self._undecided is not None

    @property
    def has_staged(self) -> bool:
        """Whether the sink has staged items that the entry does not name yet."""
        return bool(self._staged)

    async def settle(self) -> None:
        """Prepare for the next commit: repeat an undecided write, and publish if too many commits are unpublished.

        Raises: FencedError if another process has written the entry; StoreUnavailableError if the store cannot be reached now; StateError
        if waiting does not help.
        """
        if self._undecided is not None:
            await self._decide(self._undecided)
        if len(self._unpublished) >= MOST_UNPUBLISHED:
            await self.publish()

    async def stage(self, records: int = 0) -> None:
        """Let the sink stage the written records, so that the next commit names them. `records`: number of records written so far.

        Raises: StoreUnavailableError if the destination cannot be reached now, in which case the rows stay in the sink; the other errors
        of the sink.
        """
        self._number += 1
        self._records = records
        try:
            staged = await self._sink.stage(CommitNumber(self._writer, self._number))
        except RetriesExhaustedError as error:
            raise StoreUnavailableError(str(error)) from error
        if staged is not None:
            self._staged.append(staged)

    async def commit(self, value_of: ValueOf, positions: Any, *, names_staged: bool = True) -> None:
        """Write the entry. `settle` must have returned before.

        - `value_of`: returns the content of the entry. It is called before the first await, so that the entry contains the state
          at the time of the call.
        - `positions`: the positions as plain JSON, in the format of the entry.
        - `names_staged`: if False, the entry names only items that were committed before.

        Raises: the errors of `settle`.
        """
        if self._undecided is not None:
            raise AssertionError("a commit is undecided")
        self._number += 1
        staged = tuple(self._staged) if names_staged else ()
        if self._sink.can_take_back:
            staged = tuple(replace(each, before=self._positions) for each in staged)
        value = value_of(self._number, (*self._unpublished, *staged))
        write = self._undecided = _Write(
            value, staged, self._records if names_staged else self._counts.records, positions
        )
        self._counts.begun(f"{self._name} in {self._store.place}")
        await self._decide(write)

    async def publish(self) -> None:
        """Make the committed items visible, in the order of their numbers.

        Raises: FencedError if another process has written the entry; StoreUnavailableError if the destination cannot be reached now;
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
            f"another process owns {self._name} in {self._store.place}; this one must stop, what it had not committed is dropped; a "
            "reset of the positions does that too"
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
        self._counts.decided(write.staged, write.records)
        self._unpublished += write.staged
        del self._staged[: len(write.staged)]


class CommitCounts(msgspec.Struct):
    """Numbers on the commits of a `CommittingSink`. In a group they cover all workers that this process has been, one after another.

    - `files`, `size`: number of files of the last commit that had records, and their bytes.
    - `age_ms`: time since that commit was stored.
    - `records`: number of records written to the sink before its last commit staged them.
    - `undecided`: the entry and its place, while the write of the entry has no answer; otherwise None.
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

    def begun(self, entry: str) -> None:
        """Remember that an entry is being written."""
        self.undecided = entry

    def decided(self, staged: Sequence[Staged], records: int) -> None:
        """Remember that the entry which names `staged` is stored. `records` had been written when it was staged."""
        self.undecided, self.records = None, records
        if staged:
            self.files, self.size = sum(each.files for each in staged), sum(each.size for each in staged)
            self._stored = self.clock.monotonic()


log = logging.getLogger("recordpublisher.commits")
MOST_UNPUBLISHED = 3
"""With this many unpublished commits, the next commit publishes them first, because an entry has room for only a few."""
ValueOf = Callable[[int, Sequence[Staged]], bytes]
"""Returns the stored form of the entry, from the number of the write, which makes it unique, and the staged items that it names."""


class _Write(msgspec.Struct, frozen=True):
    value: bytes
    staged: Sequence[Staged]
    records: int
    positions: Any


async def tell_of_others(sink: CommittingSink, place: str) -> None:
    """Warn if the positions in `place` are new, but the sink has rows that belong to other positions."""
    if writers := await sink.writers():
        log.warning(
            "the positions in %s are new, but %s has rows of %s: other positions belong to them, and this job may read the same records "
            "again",
            place,
            sink.destination(),
            ", ".join(sorted(writers)),
        )


# Decides when a checkpoint is taken.

MIN_PAUSE_SECONDS = 0.1
"""Seconds between a checkpoint and the next requested one.

Without this pause a thousand shards that end together would cause a thousand snapshots of a thousand shards each.
"""


class CheckpointScheduler:
    """Takes a checkpoint after each interval, and on request. With an interval of -1 it takes them on request only.

    Requests made soon after a checkpoint share the next one. The scheduler is stopped and never cancelled, so that no flush or store is
    interrupted.
    """

    def __init__(self, interval_ms: int) -> None:
        self._seconds = None if interval_ms < 0 else interval_ms / 1000
        self._requested = asyncio.Event()
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Prepare for a run."""
        self._stopping.clear()

    def request(self) -> None:
        """Request a checkpoint soon.

        A sink requests one, and so does the end of a shard whose children in other workers wait for the checkpoint (S2).
        """
        self._requested.set()

    def stop(self) -> None:
        """Make `run` return after the current checkpoint."""
        self._stopping.set()
        self._requested.set()

    async def run(self, take: Callable[[], Awaitable[object]]) -> None:
        """Take checkpoints until stopped. Raises: the errors of `take`, such as FencedError, SinkError and StateError."""
        earliest = 0.0
        while not self._stopping.is_set():
            if await wait_at_most(self._requested, self._seconds):
                await wait_at_most(self._stopping, earliest - asyncio.get_running_loop().time())
            self._requested.clear()
            if not self._stopping.is_set():
                await take()
                earliest = asyncio.get_running_loop().time() + MIN_PAUSE_SECONDS


# Measures how old the last stored checkpoint is, and since when storing one has been unsuccessful.


class CheckpointAge:
    """Owns when a worker's checkpoints began and were stored. Only one is taken at a time. `CheckpointScheduler` decides when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: float | None = None
        self._stored: float | None = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the block, which takes and stores a checkpoint. The checkpoint counts as stored if the block does not raise."""
        self._started = self._clock.monotonic() if self._started is None else self._started
        yield
        self._stored, self._started = self._clock.monotonic(), None

    @property
    def age_ms(self) -> int | None:
        """Time since the last checkpoint was stored (ms); None before the first one."""
        return self._since(self._stored)

    @property
    def running_ms(self) -> int:
        """Time since the current checkpoint began (ms); 0 if the last checkpoint is stored.

        If checkpoints before it were not stored, the time counts from the first of them.
        """
        return self._since(self._started) or 0

    def _since(self, moment: float | None) -> int | None:
        return None if moment is None else round((self._clock.monotonic() - moment) * 1000)
