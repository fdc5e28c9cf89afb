"""The contract of a sink: tests that it must pass. Subclass `SinkContract`, provide a case, and run pytest.

class TestFolderSink(SinkContract):
    @asynccontextmanager
    async def open_case(self):
        async def written():
            return [line for file in folder.iterdir() for line in file.read_bytes().splitlines()]

        yield SinkCase(lambda: FolderSink(properties), written)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord

from ..fetcher.checkpoints.staged_commits import Commits
from ..fetcher.conditional_store import ConditionalStore, ConflictError
from ..fetcher.leases.position_documents import PositionPart
from ..fetcher.monitoring.metrics_exporter import checked_metrics
from ..fetcher.pipeline.checked_sink_calls import destination_of, has_room, unfinished_of
from ..fetcher.sink import (
    Checkpoint,
    CommitNumber,
    CommittingSink,
    RevocationReason,
    Sink,
    SinkContext,
    Staged,
    State,
    entry_store_of,
)
from ..publishers.shards import Shard
from .contract import Contract, check_that_close_releases, errors_naming_rule, on_case

ARRIVAL = 1_700_000_000.5

__all__ = ["CommittingSinkContract", "SinkCase", "SinkContract"]
MAX_FLUSHES, PAUSE_SECONDS = 100, 0.05

ENTRY, OTHER_ENTRY = "group/positions/contract/0", "group/positions/contract/1"
WRITER = "contract/0"
NOT_VISIBLE = (
    "{written} is in the target after a `flush` of 5 records. The default `flush` gives `publish` items that no `commit` has written, as "
    "a job does with dead letters and a queue: `publish` must write their rows too, or `flush` must be overridden"
)
KEY_LACKS_A_PART = (
    "{written} is in the target, expected [b'1', b'2', b'3', b'4']: b'1' and b'2' are the sub-records 0 and 1 of record 7 of the shard "
    "'a', b'3' is the sub-record 0 of record 7 of the shard 'b', and b'4' is the sub-record 0 of record 7 of the shard 'a' of another "
    "stream. The key of a row must be the whole key of its record: `stream`, `shard_id`, `sequence_number` and `sub_sequence_number` "
    "(`shard_id` is left out only of records from a queue, whose shards begin with `receiver-`)"
)


@dataclass(frozen=True, slots=True)
class SinkCase:
    """An empty target, with functions to write to it and to read it.

    - `start`: makes a sink that writes to the target, as each start of a job does.
    - `written`: returns the payloads that are in the target. Those of one shard are in their order. The contract writes payloads such as
      `b"7"`.
    - `state_store`: the store of the job's positions. Only a sink that commits needs it, if it does not store positions itself (`entries`).
    - `value_of`: returns the value of a payload, for a sink that needs values of a deserializer. If it is None, the value is the payload.
    """

    start: Callable[[], Sink]
    written: Callable[[], Awaitable[Sequence[bytes]]]
    state_store: ConditionalStore | None = None
    value_of: Callable[[bytes], object] | None = None

    def batch(self, shard_id: str, *numbers: int) -> RecordBatch:
        """Return a batch of records with these numbers as payloads and sequence numbers. All have one partition key, and values."""
        return self._with_values(batch_of(shard_id, *numbers))

    def _aggregate(self, shard: Shard, sequence_number: int, *numbers: int) -> RecordBatch:
        """Return a batch of the sub-records of one record. They have these numbers as payloads, and sub-sequence numbers from 0."""
        records = [
            UserRecord(b"%d" % number, str(sequence_number), ARRIVAL, "key", None, sub)
            for sub, number in enumerate(numbers)
        ]
        return self._with_values(_batch(shard, records))

    def _with_values(self, batch: RecordBatch) -> RecordBatch:
        return batch if self.value_of is None else replace(batch, decoded=list(map(self.value_of, batch.data)))


class SinkContract(Contract[SinkCase]):
    """The tests of any sink. Implement `open_case`.

    If the sink's `open` returns stored state, the tests also check that it writes exactly once, and that a process that was replaced cannot
    write.
    """

    @on_case
    async def test_what_was_flushed_is_in_the_target(self, case: SinkCase) -> None:
        """Check that each record is written once, in the order of its shard. Calls of `watermark` and `idle` in between change nothing."""
        sink = await _opened(case)
        await sink.write(case.batch("a", 1, 2))
        await sink.watermark(1_700_000_000_000)
        await sink.write(case.batch("b", 3))
        await sink.idle()
        await sink.write(case.batch("a", 4, 5))
        await sink.flush(checkpoint_at(5))
        written = await case.written()
        words = NOT_VISIBLE.format(written=written) if isinstance(sink, CommittingSink) else None
        assert sorted(written) == [b"1", b"2", b"3", b"4", b"5"], words
        assert [payload for payload in written if payload != b"3"] == [b"1", b"2", b"4", b"5"]
        await sink.close()

    @on_case
    async def test_records_are_told_apart_by_their_whole_key(self, case: SinkCase) -> None:
        """Check that a sink leaves out no record because another one has the same sequence number.

        The other one is a sub-record of the same record, as in aggregates of the KPL, or comes from another shard, or from a shard of
        another stream with the same id.
        """
        sink = await _opened(case)
        await sink.write(case._aggregate(Shard("orders", "a"), 7, 1, 2))
        await sink.write(case._aggregate(Shard("orders", "b"), 7, 3))
        await sink.write(case._aggregate(Shard("returns", "a"), 7, 4))
        await sink.flush(checkpoint_at(7))
        written = sorted(await case.written())
        assert written == [b"1", b"2", b"3", b"4"], KEY_LACKS_A_PART.format(written=written)
        await sink.close()

    @on_case
    async def test_what_doctor_asks_changes_nothing(self, case: SinkCase) -> None:
        """Check that `recordpublisher doctor` does not disturb a running job.

        The test calls `checks` and `check_values` of a second sink, which is not opened, while the first one writes.
        """
        sink = await _opened(case)
        await sink.write(case.batch("a", 1))
        asked = case.start()
        for ask in asked.checks().values():
            await ask()
        await asked.check_values(SinkContext())
        await _close_unopened(asked)
        if (entries := entry_store_of(asked)) is not None:
            await entries.close()
        await sink.flush(checkpoint_at(1))
        assert list(await case.written()) == [b"1"]
        await sink.close()

    @on_case
    async def test_what_a_job_asks_of_a_sink_has_the_right_type(self, case: SinkCase) -> None:
        """Check the plain methods that a job calls before, between and after writes. None raises, and each returns the right type."""
        unopened = case.start()
        destination_of(unopened)
        await _close_unopened(unopened)
        sink, shard = await _opened(case), Shard("orders", "a")
        sink.shard_listed(shard, 1_700_000_000_000)
        sink.shard_started(shard, StartingPosition.trim_horizon(), follows_parents=False)
        has_room(sink)
        await sink.write(case.batch("a", 1))
        unfinished_of(sink)
        destination_of(sink)
        checked_metrics(sink)
        answers = {"may_flush_after_error": sink.may_flush_after_error(), "has_stopped": sink.has_stopped(shard.key)}
        wrong = {name: answer for name, answer in answers.items() if not isinstance(answer, bool)}
        assert not wrong, f"{wrong}: return True or False"
        sink.shard_passed(shard, SequenceNumber("2"))
        sink.shard_ended(shard, [Shard("orders", "b", parents=("a",))])
        await sink.flush(checkpoint_at(2))
        sink.revoked({shard.key: RevocationReason.ENDED})
        assert list(await case.written()) == [b"1"]
        await sink.close()

    @on_case
    async def test_a_write_leaves_its_batch_as_it_was(self, case: SinkCase) -> None:
        """Check that a sink changes no column of a batch. The job still uses the batch after the write."""
        sink = await _opened(case)
        batch = case.batch("a", 1, 2)
        before = [list(column) for column in (batch.data, batch.values, batch.sequence_numbers)]
        await sink.write(batch)
        await sink.flush(checkpoint_at(2))
        assert [list(column) for column in (batch.data, batch.values, batch.sequence_numbers)] == before, (
            "`write` has changed its batch: copy a column before you change it"
        )
        await sink.close()

    @on_case
    async def test_checkpoints_without_records_succeed(self, case: SinkCase) -> None:
        """Check that a checkpoint without records succeeds. A job takes such checkpoints while no record arrives."""
        sink = await _opened(case)
        for _ in range(2):
            await sink.flush(checkpoint_at(0))
        await sink.close()
        assert list(await case.written()) == []

    @on_case
    async def test_a_sink_that_wrote_nothing_can_be_closed(self, case: SinkCase) -> None:
        """Check that a sink can be closed before any write. A job that fails at its start does so."""
        sink = case.start()
        await sink.open(SinkContext())
        await sink.close()

    @on_case
    async def test_a_closed_sink_leaves_nothing_open(self, case: SinkCase) -> None:
        """Check that `close` closes the sockets, sessions and files that the sink has opened. A program may run many jobs in a row."""

        async def use() -> None:
            sink = await _opened(case)
            await sink.write(case.batch("a", 1))
            await sink.flush(checkpoint_at(1))
            await sink.close()

        await check_that_close_releases(use)

    @on_case
    async def test_a_restart_loses_nothing(self, case: SinkCase) -> None:
        """Check that flushed records are still there after a restart.

        If `open` returns state, it must be the state of the last checkpoint, and the target must have no record after it. Then
        `stored_positions` must return the same state, without an `open`.
        """
        sink = await _opened(case)
        await sink.write(case.batch("a", 1, 2))
        await sink.flush(checkpoint_at(2))
        await sink.write(case.batch("a", 3))
        await sink.close()
        shown = list(await case.start().stored_positions() or [])
        following = case.start()
        stored = states_of(await following.open(SinkContext()))
        written = list(await case.written())
        if stored:
            assert stored == [checkpoint_at(2).state]
            assert written == [b"1", b"2"], "the state and the records must be stored together"
            assert shown == stored, (
                "`stored_positions` must return the state that `open` returns: without it, commands act as if nothing was stored"
            )
        else:
            assert written[:2] == [b"1", b"2"]
        await following.close()

    @on_case
    async def test_a_replaced_start_cannot_store(self, case: SinkCase) -> None:
        """Check that `flush` raises FencedError and stores nothing after another process has opened the sink.

        Only a sink whose `open` returns stored state is tested. Its `flush` must store the state even if no row waits.
        """
        sleeper = await _opened(case)
        await sleeper.write(case.batch("a", 0))
        await sleeper.flush(checkpoint_at(0))
        await sleeper.flush(checkpoint_at(1))
        successor = case.start()
        if stored := states_of(await successor.open(SinkContext())):
            assert stored == [checkpoint_at(1).state], (
                "`flush` must store the state even if no row waits: records that wrote no row would be read again"
            )
            await sleeper.write(case.batch("a", 1))
            assert await _is_fenced(sleeper), (
                "after the `open` of the next start, the `flush` of the replaced start must raise FencedError, even before the next "
                "start has flushed: let `open` store a token of its own, and compare the token in the transaction of `flush`"
            )
            await successor.write(case.batch("a", 2))
            await successor.flush(checkpoint_at(2, generation=2))
            assert list(await case.written()) == [b"0", b"2"]
        await sleeper.close()
        await successor.close()

    @on_case
    async def test_shards_may_come_and_go(self, case: SinkCase) -> None:
        """Check that flushed records stay when a group gives their shard to another worker. Other shards must still be written."""
        sink = await _opened(case)
        sink.assigned(["orders/a", "orders/b"])
        await sink.write(case.batch("a", 1))
        await sink.write(case.batch("b", 2))
        await sink.flush(checkpoint_at(2))
        sink.revoked({"orders/a": RevocationReason.GIVEN})
        await sink.write(case.batch("b", 3))
        await sink.flush(checkpoint_at(3))
        assert sorted(await case.written()) == [b"1", b"2", b"3"]
        await sink.close()

    @on_case
    async def test_a_revoked_shard_may_come_back(self, case: SinkCase) -> None:
        """Check that no record is lost if another worker gets a shard before a flush, and the shard comes back.

        Its records are then written again.
        """
        sink = await _opened(case)
        sink.assigned(["orders/a"])
        await sink.write(case.batch("a", 1, 2))
        sink.revoked({"orders/a": RevocationReason.LOST})
        sink.assigned(["orders/a"])
        await sink.write(case.batch("a", 1, 2, 3))
        await sink.flush(checkpoint_at(3))
        assert set(await case.written()) == {b"1", b"2", b"3"}
        await sink.close()

    @on_case
    async def test_a_partial_checkpoint_returns_entries_that_the_sink_got(self, case: SinkCase) -> None:
        """Check the positions that `flush` returns for a shard that another worker has got, and that has come back.

        None of them may be from before the shard was revoked. In the end `flush` must return the newest position, or `has_stopped` must
        return True.
        """
        sink = await _opened(case)
        sink.assigned(["orders/a"])
        await sink.write(case.batch("a", 1, 2))
        await sink.flush(replace(checkpoint_at(2), may_be_partial=True))
        sink.revoked({"orders/a": RevocationReason.LOST})
        sink.assigned(["orders/a"])
        last = replace(checkpoint_at(5), may_be_partial=True)
        await sink.write(case.batch("a", 4, 5))
        confirmed = _entry_of(await sink.flush(last), last)
        assert confirmed in (None, _entry_of(None, last)), (
            "`flush` returned a position from before `revoked` was called for the shard"
        )
        for _ in range(MAX_FLUSHES):
            confirmed = _entry_of(await sink.flush(replace(last, stopped=("orders/a",))), last)
            if confirmed == _entry_of(None, last) or sink.has_stopped("orders/a"):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        if confirmed == _entry_of(None, last):
            assert {b"4", b"5"} <= set(await case.written())
        else:
            assert sink.has_stopped("orders/a"), (
                "`flush` must return the newest position of a stopped shard in the end, or `has_stopped` must return True"
            )
        await sink.close()

    @on_case
    async def test_stored_positions_can_be_read_beside_the_job(self, case: SinkCase) -> None:
        """Check that `recordpublisher lag` can read the stored positions without disturbing the job."""
        sink = await _opened(case)
        await sink.flush(checkpoint_at(0))
        reader = case.start()
        stored = await reader.stored_positions()
        assert stored is None or states_of(stored) == [checkpoint_at(0).state]
        await _close_unopened(reader)
        await sink.write(case.batch("a", 1))
        await sink.flush(checkpoint_at(1))
        assert list(await case.written()) == [b"1"]
        await sink.close()


def batch_of(shard_id: str, *numbers: int) -> RecordBatch:
    """Return a batch of records with these numbers as payloads and sequence numbers. All have one partition key."""
    return _batch(
        Shard("orders", shard_id), [UserRecord(b"%d" % number, str(number), ARRIVAL, "key") for number in numbers]
    )


def _batch(shard: Shard, records: Sequence[UserRecord]) -> RecordBatch:
    position = SequenceNumber(records[-1].sequence_number, records[-1].sub_sequence_number)
    size = sum(len(record.data) for record in records)
    return RecordBatch(shard, records, 0, position, raw_count=len(records), raw_bytes=size)


def checkpoint_at(position: int, generation: int = 1) -> Checkpoint:
    """Return a checkpoint of one shard, which was read up to `position`."""
    return Checkpoint({"version": 2, "generation": generation, "shards": {"orders/a": {"position": str(position)}}})


def states_of(stored: State | Sequence[State] | None) -> list[State]:
    """Return the states that `Sink.open` has returned, as a list."""
    return [stored] if isinstance(stored, Mapping) else list(stored or [])


async def _opened(case: SinkCase) -> Sink:
    sink = case.start()
    assert not states_of(await sink.open(SinkContext())), "the case's target must be empty"
    return sink


def _entry_of(confirmed: State | None, given: Checkpoint) -> Mapping[str, Any] | None:
    """Return the position of the shard `orders/a` that a flush has stored.

    - `confirmed`: the result of the flush.
    - `given`: the checkpoint that the flush got. It counts if `confirmed` is None.
    """
    assert confirmed is None or isinstance(confirmed, Mapping), (
        f"`flush` returned {type(confirmed).__name__}: it must return None, or the state that it has stored"
    )
    entry: Mapping[str, Any] | None = (given.state if confirmed is None else confirmed)["shards"].get("orders/a")
    return entry


async def _close_unopened(sink: Sink) -> None:
    """Close a sink that was not opened, as commands such as `recordpublisher lag` do. Raises: AssertionError if that fails."""
    rule = "`close` must succeed for a sink that was not opened, because commands such as `recordpublisher lag` do not open it"
    with errors_naming_rule(rule):
        await sink.close()


async def _is_fenced(sink: Sink) -> bool:
    try:
        await sink.flush(checkpoint_at(1))
    except FencedError:
        return True
    return False


class _Process:
    """One run of a worker.

    - `sink`: its opened sink.
    - `entry`: the name of the stored document with its positions. An earlier run may have written the document.
    - `life`: the name of the run.
    """

    def __init__(self, case: SinkCase, life: str, entry: str = ENTRY) -> None:
        sink = case.start()
        assert isinstance(sink, CommittingSink), "the case's sink is not a CommittingSink"
        self.case, self.sink = case, sink
        store = sink.entries() or case.state_store
        assert store is not None, "`entries` of the sink returned None: the case needs a `state_store`"
        self.store: ConditionalStore = store
        self.life, self.entry = life, entry
        self.number = 0

    async def begin(self, number: int = 0) -> None:
        """Call `publish`, `begin` and `commit`, as a job does at its start. The commits of this run have greater numbers than `number`."""
        stored = await self.store.get(self.entry)
        named = () if stored is None else PositionPart.from_bytes(stored.value, self.entry).staged
        await self.sink.publish(named)
        await self.sink.begin(self.life)
        writer, version = self.entry.removeprefix("group/positions/"), None if stored is None else stored.version
        self.commits = Commits(self.sink, self.store, self.entry, writer, version=version, number=number)
        await self.commits.commit(self.value, None)

    async def write(self, shard_id: str, *numbers: int) -> None:
        await self.sink.write(self.case.batch(shard_id, *numbers))

    async def commit(self) -> None:
        """Stage the written rows, and commit them together with the positions."""
        await self.commits.stage()
        await self.commits.commit(self.value, None)

    async def checkpoint(self) -> None:
        await self.commit()
        await self.commits.publish()

    def value(self, number: int, staged: Sequence[Staged]) -> bytes:
        return PositionPart(self.life, number, staged=staged).to_bytes()

    async def close(self) -> None:
        await self.sink.close()
        await self.store.close()


async def _start_process(case: SinkCase, life: str = "first", number: int = 0, entry: str = ENTRY) -> _Process:
    process = _Process(case, life, entry)
    await process.sink.open(SinkContext())
    await process.begin(number)
    return process


def _ended(*lives: str) -> Callable[[str], bool]:
    return lambda life: life in lives


class CommittingSinkContract(SinkContract):
    """The tests of a sink that commits (`CommittingSink`), in addition to those of any sink.

    An entry is the stored document that has the positions of a worker, and names the committed items.
    """

    @on_case
    async def test_rows_are_visible_when_they_are_committed_and_published(self, case: SinkCase) -> None:
        """Check that rows become visible only when they are committed and published.

        Each row becomes visible once. The rows of a shard stay in their order.
        """
        process = await _start_process(case)
        await process.write("a", 1, 2)
        await process.write("b", 3)
        await process.commits.stage()
        assert list(await case.written()) == [], "rows must not be visible before `commit` and `publish`"
        await process.write("a", 4)
        await process.commits.commit(process.value, None)
        await process.commits.publish()
        assert sorted(await case.written()) == [b"1", b"2", b"3"], (
            "rows that are written after `stage` must wait for the next `stage`"
        )
        await process.checkpoint()
        written = list(await case.written())
        assert sorted(written) == [b"1", b"2", b"3", b"4"]
        assert [payload for payload in written if payload != b"3"] == [b"1", b"2", b"4"]
        await process.close()

    @on_case
    async def test_nothing_is_staged_of_nothing(self, case: SinkCase) -> None:
        """Check that a checkpoint without rows stages nothing and commits only positions."""
        process = await _start_process(case)
        assert await process.sink.stage(CommitNumber(WRITER, 2**40)) is None
        await process.checkpoint()
        await process.sink.publish([])
        assert list(await case.written()) == []
        await process.close()

    @on_case
    async def test_what_is_staged_is_plain_json(self, case: SinkCase) -> None:
        """Check that staged items are plain JSON. Another process must be able to publish them as it finds them in the entry."""
        process = await _start_process(case)
        await process.write("a", 1)
        staged = await process.sink.stage(CommitNumber(WRITER, 2**40))
        stored = await process.store.get(ENTRY)
        assert staged is not None
        assert stored is not None
        content = json.loads(json.dumps(dict(staged.content)))
        assert staged.number == CommitNumber(WRITER, 2**40)
        value = process.value(77, [staged])
        await process.sink.commit(process.store, ENTRY, value, stored.version, [staged])
        await process.sink.publish([replace(staged, content=content)])
        assert list(await case.written()) == [b"1"]
        await process.close()

    @on_case
    async def test_whoever_comes_next_publishes_what_an_entry_names(self, case: SinkCase) -> None:
        """Check that another process can publish the items that an entry names.

        The process that committed them may have been killed. If it was only suspended, it publishes the same items later.
        """
        process = await _start_process(case)
        await process.write("a", 1)
        await process.checkpoint()
        await process.write("a", 2)
        await process.commit()
        second = await _start_process(case, "second", 2**32)
        assert list(await case.written()) == [b"1", b"2"]
        await process.commits.publish()
        third = await _start_process(case, "third", 2**33)
        assert list(await case.written()) == [b"1", b"2"], "publishing again must change nothing"
        await third.write("a", 3)
        await third.checkpoint()
        await process.commits.publish()
        assert list(await case.written()) == [b"1", b"2", b"3"]
        for each in (process, second, third):
            await each.close()

    @on_case
    async def test_several_commits_are_published_together(self, case: SinkCase) -> None:
        """Check that several commits can be published together, as after an outage of the target. Some may be published already."""
        process = await _start_process(case)
        for number in (1, 2, 3):
            await process.write("a", number)
            await process.commit()
        await process.commits.publish()
        stored = await process.store.get(ENTRY)
        assert stored is not None
        await process.sink.publish(PositionPart.from_bytes(stored.value, ENTRY).staged)
        assert list(await case.written()) == [b"1", b"2", b"3"]
        await process.close()

    @on_case
    async def test_a_commit_is_repeated_as_it_is(self, case: SinkCase) -> None:
        """Check that a commit can be repeated, because its answer may have been lost. Its rows are written only once.

        The second commit succeeds, or raises a ConflictError that has the value of the first one.
        """
        process = await _start_process(case)
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
            assert found.value == value, (
                "a repeated `commit` that raises ConflictError must find its own value: no other process has written the entry"
            )
            again = found.version
        assert again == version
        await process.sink.publish([staged])
        assert list(await case.written()) == [b"1"]
        await process.close()

    @on_case
    async def test_a_replaced_life_commits_nothing(self, case: SinkCase) -> None:
        """Check that a run can commit neither positions nor rows after another run has replaced its entry, or the entry was deleted."""
        sleeper = await _start_process(case)
        await sleeper.write("a", 1)
        second = await _start_process(case, "second", 2**32)
        assert await _is_process_fenced(sleeper), "a commit after the entry was replaced must raise ConflictError"
        await second.write("a", 1)
        await second.checkpoint()
        await sleeper.commits.publish()
        assert list(await case.written()) == [b"1"]
        await second.store.delete(ENTRY)
        await second.write("a", 2)
        assert await _is_process_fenced(second), "a commit must not create an entry that was deleted"
        assert await second.store.get(ENTRY) is None
        assert list(await case.written()) == [b"1"]
        await sleeper.close()
        await second.close()

    @on_case
    async def test_a_life_begins_empty(self, case: SinkCase) -> None:
        """Check that `begin` drops all rows of the run before that are not committed, even staged ones."""
        process = await _start_process(case)
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
        """Check that `discard` removes the rows of a run that has ended, except rows that an entry names.

        The rows of runs that continue must stay too.
        """
        process = await _start_process(case)
        await process.write("a", 1)
        await process.commit()
        stored = await process.store.get(ENTRY)
        assert stored is not None
        named = PositionPart.from_bytes(stored.value, ENTRY).staged
        await process.write("a", 2)
        await process.commits.stage()
        other = await _start_process(case, "other", entry=OTHER_ENTRY)
        await other.write("b", 7)
        await other.commits.stage()
        for _ in range(2):
            await process.sink.discard(_ended("first"), named)
        await process.commits.publish()
        await other.commits.commit(other.value, None)
        await other.commits.publish()
        assert sorted(await case.written()) == [b"1", b"7"]
        await process.sink.discard(_ended("unknown"), ())
        await other.close()
        await process.close()

    @on_case
    async def test_rows_of_a_revoked_shard_are_not_staged(self, case: SinkCase) -> None:
        """Check that rows of a revoked shard are not staged. The shard's next reader writes them again."""
        process = await _start_process(case)
        await process.write("a", 1)
        await process.write("b", 2)
        process.sink.revoked({"orders/a": RevocationReason.LOST})
        await process.checkpoint()
        assert list(await case.written()) == [b"2"]
        await process.close()

    @on_case
    async def test_any_life_can_be_ended(self, case: SinkCase) -> None:
        """Check that `end_life` accepts any run of a worker, even an unknown one or one that has staged nothing. Other runs continue."""
        process = await _start_process(case)
        second = await _start_process(case, "second", 2**32)
        await second.sink.end_life("first")
        await second.sink.end_life("unknown")
        await second.write("a", 1)
        await second.checkpoint()
        assert list(await case.written()) == [b"1"]
        await process.close()
        await second.close()


async def _is_process_fenced(process: _Process) -> bool:
    try:
        await process.commit()
    except FencedError:
        return True
    return False
