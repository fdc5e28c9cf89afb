"""The port of sinks whose rows become visible exactly once, through the entry that stores their positions (S6, E1)."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.records import V

from .conditional_store import ConditionalStore, write_value
from .sink import Checkpoint, Sink


class CommitNumber(NamedTuple):
    """Numbers what one writer stages. `n` is from 1 to 2**63 - 1 and only grows, even over restarts of the writer.

    `writer` is `job/life`: the job, and the life that stages. No later life has the same name. A table that stores the last number of each
    writer can tell which commits it already has.
    """

    writer: str
    n: int


@dataclass(frozen=True, slots=True)
class Staged:
    """Everything that one call of `stage` has made durable.

    - `content`: plain JSON with everything that `publish` needs in any process. The entry contains it.
    - `before`: the positions committed before it, in the format of its entry. It is for sinks that can take back a commit.
    - `files`, `size`: number of files, and their bytes. They are for metrics, and are not in the entry.
    """

    number: CommitNumber
    content: Mapping[str, Any]
    before: Any = field(default=None, compare=False, kw_only=True)
    files: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)


class Leftover(NamedTuple):
    """Something staged that may be in no entry: its name, size in bytes, the time when it was written (epoch seconds), and its life.

    `upload` is the id of an unfinished upload with that name, or None if the object itself exists.
    """

    name: str
    size: int
    written: float
    life: str
    upload: str | None = None


class CommittingSink(Sink[V]):
    """A sink that writes in three steps: stage the rows, commit them together with their positions in an entry, and publish them.

    The job owns the entries: one for each subtask, or for each worker of a group. The conditional write of an entry is the commit. A
    process that was replaced can no longer write its entry. A commit without an answer is repeated unchanged until its outcome is known.

    Calls of `write`, `begin` and `stage` never overlap. `commit`, `publish`, `discard`, `end_life` and `revoked` may be called while they
    run. A *life* is one start of a subtask, or one worker. Its name has at most 200 letters, digits and `_.-`, and is never used again.
    `open` begins a life with a random name, which `flush` uses.
    """

    can_take_back: ClassVar[bool] = False
    """Whether a commit that cannot be published can be taken back (`take_back`)."""
    _flushed: tuple[Staged, ...] = ()
    _flush_number = CommitNumber("", 0)

    def entries(self) -> ConditionalStore | None:
        """Return where entries are stored next to the rows, or None if they are stored in `flink.state.uri`, which must then be set.

        If they are next to the rows, all jobs that write there find each other's entries. The method returns the same object at each call,
        even before `open`; the job closes it.
        """
        return None

    def target(self) -> str:
        """Return the name of the destination that an entry stores with its rows; a job refuses entries of another target.

        If it is empty, targets are not compared. Default: `destination`, or an empty text if the entries are stored next to the rows.
        """
        return self.destination() if self.entries() is None else ""

    @abstractmethod
    async def begin(self, life: str) -> None:
        """Begin a life: drop what was written and not staged, and what was staged here and not committed.

        The names of everything that is staged later begin with `life`.
        """

    @abstractmethod
    async def stage(self, number: CommitNumber) -> Staged | None:
        """Make durable, but not visible, what was written since the last call. Return None if nothing was written.

        Rejected records are reported (`SinkContext.reject_all`) before this returns. Each number is used for one call only. After
        StoreUnavailableError, or a cancellation, the records stay: the next call stages them again with a higher number.

        Raises: StoreUnavailableError if the destination cannot be reached now; SinkError if staging failed for good, which ends the life or
        the job.
        """

    async def commit(
        self, store: ConditionalStore, name: str, value: bytes, expected: str | None, staged: Sequence[Staged]
    ) -> str:
        """Write the entry if its version is `expected`, or if `expected` is None and there is no entry, and return its new version.

        It is called again with the same arguments until there is an answer: an attempt may have taken effect, or may still do so. `staged`
        is what the entry commits. A database writes these rows in the same transaction, unless the value of the entry is already stored.

        Raises: ConflictError, with the stored value, if the version is another one; StoreUnavailableError if the store cannot be reached
        now; StateError if waiting does not help.
        """
        return await write_value(store, name, value, expected)

    @abstractmethod
    async def publish(self, staged: Sequence[Staged]) -> None:
        """Make visible what entries name, each item once and in this order, whichever process calls and how often.

        Another process may be publishing the same items now.

        Raises: StoreUnavailableError if the destination cannot be reached now, and the job calls again; StateError if a staged item is
        missing and was not published.
        """

    async def unpublished(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return the items for which the destination itself proves that none of their rows is visible. Also called before `open`.

        Default: nothing can be proved. Raises: StoreUnavailableError if the destination cannot be reached now; StateError if it cannot be
        read.
        """
        return ()

    async def take_back(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return the items that are not published, and make sure that no process publishes them, or later items of their writers.

        `publish` raises StateError for these items from now on. This is called again until the entry no longer names them. Raises: the
        errors of `unpublished`.
        """
        return ()

    async def writers(self) -> Sequence[str]:
        """Return the names of the writers that have rows here, as far as the destination knows them.

        Called once, before the first `begin` of a job that has no positions yet. Default: no names.
        """
        return ()

    @abstractmethod
    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete what ended lives have staged, except the items in `kept`, which entries still name.

        `has_ended` gets the name of a life. A process that was replaced may stage later; what it stages stays until the next call. Raises:
        StoreUnavailableError if the destination cannot be reached now.
        """

    async def forget(self, is_forgotten: Callable[[str], bool]) -> bool:
        """Drop what the destination remembers of lives that have ended and that no entry names.

        `is_forgotten` gets the name of a life. Return whether nothing is remembered any longer. If False, a later commit drops the rest,
        and a group calls again. Default: the destination remembers nothing.

        Raises: StoreUnavailableError if the destination cannot be reached now; StateError if it cannot be read.
        """
        return True

    async def leftovers(self, kept: Sequence[Staged]) -> Sequence[Leftover]:
        """Return what any life has staged, except the items in `kept`. The result may contain what is being staged now.

        Also called before `open`. Default: nothing, for a sink that stages in no place of its own. Raises: StoreUnavailableError if the
        destination cannot be reached now; StateError if it cannot be read.
        """
        return ()

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete the leftovers; some may already be gone.

        Raises: StoreUnavailableError if the destination cannot be reached now; StateError if it cannot be changed.
        """

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Stage what was written, and publish it at once (at least once).

        This is for a sink that works without positions of its own, such as a dead-letter sink. A job that commits never calls it. Raises:
        the errors of `stage` and `publish`.
        """
        writer, n = self._flush_number
        self._flush_number = number = CommitNumber(writer or f"flush/{secrets.token_hex(8)}", n + 1)
        staged = await self.stage(number)
        if staged is not None:
            self._flushed = (*self._flushed, staged)
        await self.publish(self._flushed)
        self._flushed = ()

    async def end_life(self, life: str) -> None:
        """Release the locks that a life still holds, for example in a database session; its process may be suspended within `commit`.

        Another process replaces or seals its entry next.
        """

    def checks(self) -> Checks:
        """Check whether the entries can be read, if they are stored next to the rows."""
        entries = self.entries()

        async def positions() -> str:
            assert entries is not None
            return f"reachable, {len(await entries.list_names(''))} entries"

        return {} if entries is None else {"positions": positions}


def entries_of(sink: Sink | None) -> ConditionalStore | None:
    """Return where a sink stores entries of positions next to its rows, or None if it stores none."""
    return sink.entries() if isinstance(sink, CommittingSink) else None


def stores_positions(sink: type[Sink]) -> bool:
    """Return whether sinks of this class store a job's positions with what they write."""
    if issubclass(sink, CommittingSink):
        return sink.entries is not CommittingSink.entries
    return sink.stored_positions is not Sink.stored_positions
