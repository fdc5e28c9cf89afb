"""Commits: one life's entry, which commits what a sink has staged together with the positions (S6, E1)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from recordpublisher.publishers.errors import FencedError, RetriesExhaustedError, StateError, StoreUnavailableError

from ..committing_sink import CommitNumber, CommittingSink, Staged
from ..conditional_store import ConditionalStore, ConflictError
from .commit_counts import CommitCounts

log = logging.getLogger("recordpublisher.commits")
MOST_UNPUBLISHED = 3
"""With so many commits that are not published yet the next one waits: an entry has room for a few."""
ValueOf = Callable[[int, Sequence[Staged]], bytes]
"""The entry as it is stored, from the number of the write, which makes it unique, and from what it names."""


class _Write(msgspec.Struct, frozen=True):
    value: bytes
    staged: Sequence[Staged]
    records: int
    positions: Any


class Commits:
    """Owns one life's entry: its version, the number of the last commit, what is undecided, and what is not published yet.

    A write without an answer may have taken effect, or may still do so. It is repeated as it is until it is decided: it finds itself, or
    what somebody else has written. So nothing is committed twice, and nothing of an ended life is committed later.

    `settle` and `commit` must not overlap; `stage` and `publish` may be called meanwhile.
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
        """`version`: of the stored entry, None: there is none. Numbers of the life come after `number`. `positions`: its positions."""
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
        """Whether a commit had no answer yet."""
        return self._undecided is not None

    @property
    def has_staged(self) -> bool:
        """Whether something is staged that no entry names."""
        return bool(self._staged)

    async def settle(self) -> None:
        """Repeat what is undecided, and publish if too much waits for it: afterwards an entry can be written.

        Raises: FencedError when somebody else has written the entry; StoreUnavailableError, StateError.
        """
        if self._undecided is not None:
            await self._decide(self._undecided)
        if len(self._unpublished) >= MOST_UNPUBLISHED:
            await self.publish()

    async def stage(self, records: int = 0) -> None:
        """Let the sink stage what was written: the next commit names it. `records`: written until now. Raises: errors of the sink."""
        self._number += 1
        self._records = records
        staged = await self._sink.stage(CommitNumber(self._writer, self._number))
        if staged is not None:
            self._staged.append(staged)

    async def commit(self, value_of: ValueOf, positions: Any, *, names_staged: bool = True) -> None:
        """Write the entry, after `settle`. Without `names_staged` it stays the entry of what was committed before.

        `positions`: as the entry has them, plain JSON. `value_of` is called before the first await: what it tells of is what the entry has.
        Raises: as `settle`.
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
        """Publish what is committed, in the order of its numbers. Raises: StoreUnavailableError, StateError, FencedError."""
        async with self._publishing:
            if committed := tuple(self._unpublished):
                try:
                    await self._sink.publish(committed)
                except StoreUnavailableError:
                    raise
                except StateError:
                    # Whoever has replaced this life has published it: its files may be gone since.
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


async def tell_of_others(sink: CommittingSink, place: str) -> None:
    """Warn of rows that other positions belong to than those of a job, or of a group, whose positions in `place` are new."""
    if writers := await sink.writers():
        log.warning(
            "the positions in %s are new, but %s has rows of %s: other positions belong to them, and this job may read the same records "
            "again",
            place,
            sink.destination(),
            ", ".join(sorted(writers)),
        )
