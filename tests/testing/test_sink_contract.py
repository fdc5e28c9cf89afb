"""A simple sink passes the contract, and each kind of broken sink fails one of its tests."""

import socket
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

import recordpublisher as rp
from recordpublisher.testing import SinkCase, SinkContract, run_virtual


class Target:
    """What was committed: payloads, the state with them, and the generation that owns both."""

    def __init__(self):
        self.payloads, self.state, self.generation = [], None, 0


class ListSink(rp.Sink):
    """Keeps payloads until a checkpoint, which commits them with its state."""

    def __init__(self, target):
        self.target, self.waiting = target, []

    async def open(self, context):
        self.target.generation += 1
        self.generation = self.target.generation
        return self.target.state

    async def write(self, batch):
        self.waiting += batch.data

    async def flush(self, checkpoint=None):
        if self.generation != self.target.generation:
            raise rp.FencedError("a newer start owns the list")
        self.target.payloads += self.waiting
        self.target.state, self.waiting = checkpoint.state, []

    async def stored_positions(self):
        return [] if self.target.state is None else [self.target.state]


class ListContract(SinkContract):
    sink = ListSink

    @asynccontextmanager
    async def open_case(self):
        target = Target()

        async def written():
            return target.payloads

        yield SinkCase(lambda: self.sink(target), written)

    def execute(self, work):
        run_virtual(work)


class TestASinkOfAList(ListContract):
    """The contract, on virtual time."""


class LosesOnFlush(ListSink):
    """Returns from flush before the records are stored."""

    async def flush(self, checkpoint=None):
        self.target.state = checkpoint.state


class CommitsOnWrite(ListSink):
    """Stores records before the state that covers them."""

    async def write(self, batch):
        self.target.payloads += batch.data


class IgnoresNewerStart(ListSink):
    """Stores also after it was replaced."""

    async def flush(self, checkpoint=None):
        self.generation = self.target.generation
        await super().flush(checkpoint)


class FencesOnlyFromItsFirstFlush(ListSink):
    """Compares the generations of checkpoints, and stores nothing when it is opened."""

    async def open(self, context):
        return self.target.state

    async def flush(self, checkpoint=None):
        if self.target.state and self.target.state["generation"] > checkpoint.state["generation"]:
            raise rp.FencedError("a newer start owns the list")
        self.target.payloads += self.waiting
        self.target.state, self.waiting = checkpoint.state, []


class ClosesWhatWasNotOpened(ListSink):
    """Closes something that only `open` makes."""

    async def close(self):
        del self.generation


class FailsWithoutRecords(ListSink):
    """Takes no checkpoint without records."""

    async def flush(self, checkpoint=None):
        assert self.waiting, "nothing to store"
        await super().flush(checkpoint)


class ShowsNoPositions(ListSink):
    """Returns stored state from `open` alone."""

    async def stored_positions(self):
        return None


class StoresStateWithRowsOnly(ListSink):
    """Keeps the last state if no row waits."""

    async def flush(self, checkpoint=None):
        if self.waiting or self.target.state is None:
            await super().flush(checkpoint)


class ReversesRecords(ListSink):
    """Stores the records of a checkpoint in reverse order."""

    async def flush(self, checkpoint=None):
        self.waiting.reverse()
        await super().flush(checkpoint)


class FencesReaders(ListSink):
    """Takes the target over from the running job to read its positions."""

    async def stored_positions(self):
        return await self.open(rp.SinkContext())


class WritesToBeAsked(ListSink):
    """Finds out by a record of its own whether it can write."""

    def checks(self):
        async def write():
            self.target.payloads.append(b"test")

        return {"write": write}


class DropsWhatWasFlushed(ListSink):
    """Takes back what it has stored of a revoked shard."""

    def revoked(self, shards):
        self.target.payloads.clear()


class FailsAtTheEndOfAShard(ListSink):
    """Expects that each revoked shard has another reader."""

    def revoked(self, shards):
        for shard, reason in shards.items():
            assert reason is not rp.RevocationReason.ENDED, shard


class RefusesRevokedShards(ListSink):
    """Never writes a shard again that was revoked once."""

    gone = frozenset()

    def revoked(self, shards):
        self.gone, self.waiting = frozenset(shards), []

    async def write(self, batch):
        if batch.shard.key not in self.gone:
            await super().write(batch)


class UnfinishedNumber(ListSink):
    """Returns a number instead of an Unfinished."""

    def unfinished(self):
        return 5


class FailsToStart(ListSink):
    def shard_started(self, shard, start, *, follows_parents):
        raise ValueError("started")


class NamesNoDestination(ListSink):
    def destination(self):
        raise KeyError("d")


class ExportsText(ListSink):
    def exported_metrics(self):
        return ["rows"]


class SaysMaybe(ListSink):
    """Returns None from a method that answers yes or no."""

    def has_stopped(self, shard):
        return None


class SortsItsBatch(ListSink):
    async def write(self, batch):
        batch.data.reverse()
        self.waiting += reversed(batch.data)


class KeepsTheFirstOfAKey(ListSink):
    """Ignores records whose key it has, as `INSERT ... ON CONFLICT DO NOTHING` does."""

    @staticmethod
    def key_of(record):
        return (record.stream, record.shard_id, record.sequence_number, record.sub_sequence_number)

    def __init__(self, target):
        super().__init__(target)
        self.keys = {}

    async def write(self, batch):
        for record in batch:
            if self.keys.setdefault(self.key_of(record), record.data) is record.data:
                self.waiting.append(record.data)


class TestASinkThatIgnoresWhatItHas(ListContract):
    sink = KeepsTheFirstOfAKey


class KeepsTheLastOfAKey(KeepsTheFirstOfAKey):
    """Replaces the row of a key."""

    async def write(self, batch):
        for record in batch:
            if (before := self.keys.get(self.key_of(record))) in self.waiting:
                self.waiting.remove(before)
            self.keys[self.key_of(record)] = record.data
            self.waiting.append(record.data)


@pytest.mark.parametrize("kind", [KeepsTheFirstOfAKey, KeepsTheLastOfAKey])
@pytest.mark.parametrize(
    "parts",
    [(0, 1, 2), (0, 2, 3), (1, 2, 3), (2,)],
    ids=["no sub-record", "no shard", "no stream", "number alone"],
)
def test_a_sink_whose_key_lacks_a_part_is_found(kind, parts):
    class Broken(kind):
        @staticmethod
        def key_of(record):
            whole = KeepsTheFirstOfAKey.key_of(record)
            return tuple(whole[part] for part in parts)

    contract = ListContract()
    contract.sink = Broken

    key = "`stream`, `shard_id`, `sequence_number` and `sub_sequence_number`"
    with pytest.raises(AssertionError, match=f"is in the target, expected .* whole key of its record: {key}"):
        contract.test_records_are_told_apart_by_their_whole_key()


class LeavesItsSession(ListSink):
    async def open(self, context):
        self.session = aiohttp.ClientSession()
        return await super().open(context)


class LeavesItsSocket(ListSink):
    async def write(self, batch):
        self.socket = socket.socket()
        await super().write(batch)


class ClosesItsSession(LeavesItsSession):
    async def close(self):
        await self.session.close()


@pytest.mark.parametrize(
    ("broken", "left"), [(LeavesItsSession, "Unclosed client session"), (LeavesItsSocket, "unclosed <socket.socket")]
)
def test_a_sink_that_leaves_something_open_is_found(broken, left):
    contract = ListContract()
    contract.sink = ClosesItsSession
    contract.test_a_closed_sink_leaves_nothing_open()
    contract.sink = broken

    with pytest.raises(AssertionError, match=f"after `close`, Python warned: {left}.* Close in `close` what the"):
        contract.test_a_closed_sink_leaves_nothing_open()


@pytest.mark.parametrize(
    ("broken", "test", "error"),
    [
        (UnfinishedNumber, "test_what_a_job_asks_of_a_sink_has_the_right_type", rp.PluginError),
        (FailsToStart, "test_what_a_job_asks_of_a_sink_has_the_right_type", ValueError),
        (NamesNoDestination, "test_what_a_job_asks_of_a_sink_has_the_right_type", KeyError),
        (ExportsText, "test_what_a_job_asks_of_a_sink_has_the_right_type", TypeError),
        (SaysMaybe, "test_what_a_job_asks_of_a_sink_has_the_right_type", AssertionError),
        (FailsAtTheEndOfAShard, "test_what_a_job_asks_of_a_sink_has_the_right_type", AssertionError),
        (SortsItsBatch, "test_a_write_leaves_its_batch_as_it_was", AssertionError),
        (LosesOnFlush, "test_what_was_flushed_is_in_the_target", AssertionError),
        (CommitsOnWrite, "test_a_restart_loses_nothing", AssertionError),
        (IgnoresNewerStart, "test_a_replaced_start_cannot_store", AssertionError),
        (FencesOnlyFromItsFirstFlush, "test_a_replaced_start_cannot_store", AssertionError),
        (ClosesWhatWasNotOpened, "test_what_doctor_asks_changes_nothing", AssertionError),
        (FailsWithoutRecords, "test_checkpoints_without_records_succeed", AssertionError),
        (ShowsNoPositions, "test_a_restart_loses_nothing", AssertionError),
        (StoresStateWithRowsOnly, "test_a_replaced_start_cannot_store", AssertionError),
        (ReversesRecords, "test_what_was_flushed_is_in_the_target", AssertionError),
        (WritesToBeAsked, "test_what_doctor_asks_changes_nothing", AssertionError),
        (DropsWhatWasFlushed, "test_shards_may_come_and_go", AssertionError),
        (RefusesRevokedShards, "test_a_revoked_shard_may_come_back", AssertionError),
        (FencesReaders, "test_stored_positions_can_be_read_beside_the_job", rp.FencedError),
    ],
)
def test_a_broken_sink_is_found(broken, test, error):
    contract = ListContract()
    contract.sink = broken

    with pytest.raises(error):
        getattr(contract, test)()


def test_a_sink_of_values_gets_values():
    class KeepsNumbers(ListSink):
        async def write(self, batch):
            self.waiting += [b"%d" % value["order"] for value in batch.values]

    class Contract(ListContract):
        sink = KeepsNumbers

        @asynccontextmanager
        async def open_case(self):
            async with super().open_case() as case:
                yield replace(case, value_of=lambda payload: {"order": int(payload)})

    Contract().test_what_was_flushed_is_in_the_target()
