"""CommittingSink: a sink whose rows become visible once, through the entry that stores their positions (S6, E1)."""

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
    """Numbers what one writer stages; `n` only grows, also over restarts of the writer. At least 1, at most 2**63 - 1.

    `writer`: the job and the life that stages, as `job/life`; no other life comes back under this name. A table that keeps the last number
    of each writer knows by it what it has already.
    """

    writer: str
    n: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What one `stage` has made durable. `content` is plain JSON, which the entry names: all that `publish` needs, in any process.

    `before`: the positions that were committed before it, as its entry has them, for sinks that can take a commit back. `files` and `size`,
    in bytes, are for metrics, and not in the entry.
    """

    number: CommitNumber
    content: Mapping[str, Any]
    before: Any = field(default=None, compare=False, kw_only=True)
    files: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)


class Leftover(NamedTuple):
    """Something staged that may be in no entry: its name, bytes, when it was written (epoch seconds), and its life.

    `upload`: the id of an unfinished upload of that name; None: it is there.
    """

    name: str
    size: int
    written: float
    life: str
    upload: str | None = None


class CommittingSink(Sink[V]):
    """A sink in three steps: what was written is staged, an entry commits it together with its positions, and then it is published.

    The job owns the entry: one of each subtask, or of each worker of a group. Its conditional write is the commit; whoever is replaced
    cannot write it. A commit without an answer is repeated as it is until it is decided.

    Calls of `write`, `begin` and `stage` never overlap; `commit`, `publish`, `discard` and `end_life` may be called meanwhile, and
    `revoked` too. A *life* is one start of a subtask, or one worker: its name has letters, digits and `_.-`, at most 200 of them, and is
    never used again. `open` begins one with a random name (`flush`).
    """

    can_take_back: ClassVar[bool] = False
    """Whether a commit that cannot be published can be taken back (`take_back`)."""
    _flushed: tuple[Staged, ...] = ()
    _flush_number = CommitNumber("", 0)

    def entries(self) -> ConditionalStore | None:
        """Where entries are stored: with the rows, so that each job that writes there meets the others. None: in `flink.state.uri`, which
        must then be set. The same object at each call, also before `open`; the job closes it."""
        return None

    def target(self) -> str:
        """What an entry says its rows are in; one of another target is refused. Empty: not compared. Default: `destination`, or nothing
        for entries that lie with the rows."""
        return self.destination() if self.entries() is None else ""

    @abstractmethod
    async def begin(self, life: str) -> None:
        """Drop what was written and is not staged, and what was staged here and not committed; later staged names begin with `life`."""

    @abstractmethod
    async def stage(self, number: CommitNumber) -> Staged | None:
        """Make durable, and not visible, what was written since the last call; None: nothing was.

        Rejected records are reported (`SinkContext.reject_all`) before this returns. A number is used for one call. Raises:
        StoreUnavailableError: what was written stays, and the next call has it, too, with a higher number; so does one that was cancelled.
        SinkError: the life, or the job, ends.
        """

    async def commit(
        self, store: ConditionalStore, name: str, value: bytes, expected: str | None, staged: Sequence[Staged]
    ) -> str:
        """Write the entry if its version is `expected` (None: if there is none), and return its new version. `staged`: what it commits.

        Called again with the same arguments until there is an answer: an attempt may have taken effect, and may still. A database writes
        the rows in the same transaction, if the entry's value is not stored yet. Raises: ConflictError, with the value that is stored
        instead; StoreUnavailableError; StateError when waiting does not help.
        """
        return await write_value(store, name, value, expected)

    @abstractmethod
    async def publish(self, staged: Sequence[Staged]) -> None:
        """Make visible what entries name, each once, in this order, whoever calls and how often: another process may do the same now.

        Raises: StoreUnavailableError, it is called again; StateError
        for something staged that is missing and was not published.
        """

    async def unpublished(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return those of which the destination itself proves that nothing is visible. Called before `open`, too.

        Raises: StoreUnavailableError, StateError. Default: nothing can be proved.
        """
        return ()

    async def take_back(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return what is not published, and see to it that no process publishes it, or anything later of its writers, from now on.

        `publish` then raises StateError for it. Called again until the entry no longer names it. Raises: as `unpublished`.
        """
        return ()

    async def writers(self) -> Sequence[str]:
        """Return names of writers whose rows are here, as far as the destination remembers them. Called once, before the first `begin` of a
        job that has no positions yet. Default: it remembers none."""
        return ()

    @abstractmethod
    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete what lives that have ended have staged; `kept` is what entries still name. A life is asked for by its name.

        Raises: StoreUnavailableError. What a process that was replaced stages later stays until the next call.
        """

    async def forget(self, is_forgotten: Callable[[str], bool]) -> bool:
        """Forget what the destination remembers of lives that have ended and that no entry names any more. A life is asked for by its name.

        Return whether it remembers nothing of them; False: it will after a later commit, and a group calls again. Raises:
        StoreUnavailableError, StateError. Default: it remembers nothing.
        """
        return True

    async def leftovers(self, kept: Sequence[Staged]) -> Sequence[Leftover]:
        """What any life has staged, without what `kept` names: also what is being staged now. Called before `open`, too.

        Raises: StoreUnavailableError, StateError. Default: nothing is left by a sink that has no place for it.
        """
        return ()

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete them; some may be gone. Raises: StoreUnavailableError, StateError."""

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Stage what was written and publish it at once, for a sink beside the positions, as that of dead letters (at least once).

        A job that commits never calls it. Raises: as `stage` and `publish`.
        """
        writer, n = self._flush_number
        self._flush_number = number = CommitNumber(writer or f"flush/{secrets.token_hex(8)}", n + 1)
        staged = await self.stage(number)
        if staged is not None:
            self._flushed = (*self._flushed, staged)
        await self.publish(self._flushed)
        self._flushed = ()

    async def end_life(self, life: str) -> None:
        """End what a life still holds locked, as a session of a database: its process may be stopped in `commit`. It will be sealed."""

    def checks(self) -> Checks:
        """Whether the entries can be read, where they lie with the rows."""
        entries = self.entries()

        async def positions() -> str:
            assert entries is not None
            return f"reachable, {len(await entries.list_names(''))} entries"

        return {} if entries is None else {"positions": positions}


def entries_of(sink: Sink | None) -> ConditionalStore | None:
    """Where a sink has the entries of positions with its rows; None: nowhere."""
    return sink.entries() if isinstance(sink, CommittingSink) else None


def stores_positions(sink: type[Sink]) -> bool:
    """Whether sinks of this class store a job's positions with what they write."""
    if issubclass(sink, CommittingSink):
        return sink.entries is not CommittingSink.entries
    return sink.stored_positions is not Sink.stored_positions
