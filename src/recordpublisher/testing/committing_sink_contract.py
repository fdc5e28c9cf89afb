"""The contract of sinks that commit by an entry (S6, E1) as tests. Subclass `CommittingSinkContract` as `SinkContract`, and run pytest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from recordpublisher.fetcher.checkpoints.commits import Commits
from recordpublisher.fetcher.checkpoints.state_entries import StateEntry
from recordpublisher.fetcher.committing_sink import CommitNumber, CommittingSink, Staged
from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import FencedError

from .contract import on_case
from .sink_case import SinkCase, batch_of
from .sink_contract import SinkContract

ENTRY = "subtask-0"
WRITER = "contract/0"


class _Process:
    """One run of a worker: its opened sink, and its entry, which an earlier run may have left."""

    def __init__(self, case: SinkCase, life: str) -> None:
        sink = case.start()
        assert isinstance(sink, CommittingSink), "the case's sink is not a CommittingSink"
        self.sink = sink
        store = sink.entries() or case.state_store
        assert store is not None, "the sink has no entries with its rows: the case needs a `state_store`"
        self.store: ConditionalStore = store
        self.life = life
        self.number = 0

    async def begin(self, number: int = 0) -> None:
        """Begin as a start does, with an open sink: publish, begin, commit. The commits are numbered after `number`."""
        stored = await self.store.get(ENTRY)
        entry = StateEntry() if stored is None else StateEntry.from_bytes(stored.value, ENTRY)
        await self.sink.publish(entry.staged)
        await self.sink.begin(self.life)
        self.commits = Commits(
            self.sink, self.store, ENTRY, WRITER, version=None if stored is None else stored.version, number=number
        )
        await self.commits.commit(self.value, None)

    async def write(self, shard_id: str, *numbers: int) -> None:
        await self.sink.write(batch_of(shard_id, *numbers))

    async def commit(self) -> None:
        """Stage, and write the entry."""
        await self.commits.stage()
        await self.commits.commit(self.value, None)

    async def checkpoint(self) -> None:
        await self.commit()
        await self.commits.publish()

    def value(self, number: int, staged: Sequence[Staged]) -> bytes:
        return StateEntry(1, number, {"life": self.life}, staged).to_bytes()

    async def close(self) -> None:
        await self.sink.close()
        await self.store.close()


async def _opened(case: SinkCase, life: str = "first", number: int = 0) -> _Process:
    process = _Process(case, life)
    await process.sink.open(SinkContext())
    await process.begin(number)
    return process


def _ended(*lives: str) -> Callable[[str], bool]:
    return lambda life: life in lives


class CommittingSinkContract(SinkContract):
    """The tests, in addition to those of any sink."""

    @on_case
    async def test_rows_are_visible_when_they_are_committed_and_published(self, case: SinkCase) -> None:
        """Each row is visible once, the rows of a shard in their order. Staging alone shows nothing."""
        process = await _opened(case)
        await process.write("a", 1, 2)
        await process.write("b", 3)
        await process.commits.stage()
        assert list(await case.written()) == [], "rows are visible only when an entry has committed them"
        await process.write("a", 4)
        await process.commits.commit(process.value, None)
        await process.commits.publish()
        assert sorted(await case.written()) == [b"1", b"2", b"3"], (
            "what is written after `stage` waits for the next one"
        )
        await process.checkpoint()
        written = list(await case.written())
        assert sorted(written) == [b"1", b"2", b"3", b"4"]
        assert [payload for payload in written if payload != b"3"] == [b"1", b"2", b"4"]
        await process.close()

    @on_case
    async def test_nothing_is_staged_of_nothing(self, case: SinkCase) -> None:
        """A checkpoint without rows commits positions alone."""
        process = await _opened(case)
        assert await process.sink.stage(CommitNumber(WRITER, 2**40)) is None
        await process.checkpoint()
        await process.sink.publish([])
        assert list(await case.written()) == []
        await process.close()

    @on_case
    async def test_what_is_staged_is_plain_json(self, case: SinkCase) -> None:
        """An entry is read by other processes. The content that they read must mean the same to `publish`."""
        process = await _opened(case)
        await process.write("a", 1)
        staged = await process.sink.stage(CommitNumber(WRITER, 2**40))
        assert staged is not None
        content = json.loads(json.dumps(dict(staged.content)))
        assert staged.number == CommitNumber(WRITER, 2**40)
        await process.sink.publish([replace(staged, content=content)])
        assert list(await case.written()) == [b"1"]
        await process.close()

    @on_case
    async def test_whoever_comes_next_publishes_what_an_entry_names(self, case: SinkCase) -> None:
        """The process that committed died before it published. It may also wake up later and publish the same."""
        process = await _opened(case)
        await process.write("a", 1)
        await process.checkpoint()
        await process.write("a", 2)
        await process.commit()
        second = await _opened(case, "second", 2**32)
        assert list(await case.written()) == [b"1", b"2"]
        await process.commits.publish()
        third = await _opened(case, "third", 2**33)
        assert list(await case.written()) == [b"1", b"2"], "publishing again must change nothing"
        await third.write("a", 3)
        await third.checkpoint()
        await process.commits.publish()
        assert list(await case.written()) == [b"1", b"2", b"3"]
        for each in (process, second, third):
            await each.close()

    @on_case
    async def test_several_commits_are_published_together(self, case: SinkCase) -> None:
        """The target was unavailable, so there are several commits. Some may be published already."""
        process = await _opened(case)
        for number in (1, 2, 3):
            await process.write("a", number)
            await process.commit()
        await process.commits.publish()
        stored = await process.store.get(ENTRY)
        assert stored is not None
        await process.sink.publish(StateEntry.from_bytes(stored.value, ENTRY).staged)
        assert list(await case.written()) == [b"1", b"2", b"3"]
        await process.close()

    @on_case
    async def test_a_commit_is_repeated_as_it_is(self, case: SinkCase) -> None:
        """The answer to a commit was lost. The second call succeeds or finds its own value, and the rows are written once."""
        process = await _opened(case)
        await process.write("a", 1)
        staged = await process.sink.stage(CommitNumber(WRITER, 2**40))
        stored = await process.store.get(ENTRY)
        assert staged is not None
        assert stored is not None
        value = process.value(77, [staged])
        version = await process.sink.commit(process.store, ENTRY, value, stored.version, [staged])
        found = None
        try:
            again = await process.sink.commit(process.store, ENTRY, value, stored.version, [staged])
        except ConflictError as error:
            found = error.current
        if found is not None:
            assert found.value == value, "a commit must find its own value"
            again = found.version
        assert again == version
        await process.sink.publish([staged])
        assert list(await case.written()) == [b"1"]
        await process.close()

    @on_case
    async def test_a_replaced_life_commits_nothing(self, case: SinkCase) -> None:
        """The entry has another version, or is gone. Then neither positions nor rows are committed."""
        sleeper = await _opened(case)
        await sleeper.write("a", 1)
        second = await _opened(case, "second", 2**32)
        assert await _is_fenced(sleeper), "a commit after the entry was replaced must raise ConflictError"
        await second.write("a", 1)
        await second.checkpoint()
        await sleeper.commits.publish()
        assert list(await case.written()) == [b"1"]
        await second.store.delete(ENTRY)
        await second.write("a", 2)
        assert await _is_fenced(second), "a commit must not create an entry that was deleted"
        assert await second.store.get(ENTRY) is None
        assert list(await case.written()) == [b"1"]
        await sleeper.close()
        await second.close()

    @on_case
    async def test_a_life_begins_empty(self, case: SinkCase) -> None:
        """The same sink begins again. It drops rows that the run before had written, or staged and not committed."""
        process = await _opened(case)
        await process.write("a", 1)
        await process.checkpoint()
        await process.write("a", 2)
        await process.commits.stage()
        await process.write("a", 3)
        following = _Process(case, "second")
        following.sink, following.store = process.sink, process.store
        await following.begin(2**32)
        await following.write("a", 2)
        await following.checkpoint()
        assert list(await case.written()) == [b"1", b"2"]
        await process.close()

    @on_case
    async def test_discarding_spares_what_entries_name_and_lives_that_go_on(self, case: SinkCase) -> None:
        """Rows of an ended run stay until they are published if an entry names them, and are removed otherwise."""
        process = await _opened(case)
        await process.write("a", 1)
        await process.commit()
        stored = await process.store.get(ENTRY)
        assert stored is not None
        named = StateEntry.from_bytes(stored.value, ENTRY).staged
        await process.write("a", 2)
        await process.commits.stage()
        other = case.start()
        assert isinstance(other, CommittingSink)
        await other.open(SinkContext())
        await other.begin("other")
        await other.write(batch_of("b", 7))
        waiting = await other.stage(CommitNumber("contract/1", 1))
        assert waiting is not None
        for _ in range(2):
            await process.sink.discard(_ended("first"), named)
        await process.commits.publish()
        await other.publish([waiting])
        assert sorted(await case.written()) == [b"1", b"7"]
        await process.sink.discard(_ended("nobody"), ())
        await other.close()
        await process.close()

    @on_case
    async def test_rows_of_a_revoked_shard_are_not_staged(self, case: SinkCase) -> None:
        """The shard's next reader writes them."""
        process = await _opened(case)
        await process.write("a", 1)
        await process.write("b", 2)
        process.sink.revoked(["orders/a"])
        await process.checkpoint()
        assert list(await case.written()) == [b"2"]
        await process.close()

    @on_case
    async def test_any_life_can_be_ended(self, case: SinkCase) -> None:
        """A run is ended before its worker is sealed. It may hold nothing, or be unknown. Other runs continue."""
        process = await _opened(case)
        second = await _opened(case, "second", 2**32)
        await second.sink.end_life("first")
        await second.sink.end_life("nobody")
        await second.write("a", 1)
        await second.checkpoint()
        assert list(await case.written()) == [b"1"]
        await process.close()
        await second.close()


async def _is_fenced(process: _Process) -> bool:
    try:
        await process.commit()
    except FencedError:
        return True
    return False
