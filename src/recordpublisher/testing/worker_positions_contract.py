"""The part of the contract of sinks for those that keep the positions of workers (ELASTIC assignment: E1, E3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from recordpublisher.fetcher.sink import Sink, SinkContext, State, WorkerPositions
from recordpublisher.publishers.errors import FencedError

from .contract import Contract, on_case
from .sink_case import SinkCase, batch_of, states_of

_A, _B = "orders/a", "orders/b"


@dataclass(frozen=True, slots=True)
class _Process:
    """A process of a group: its sink, open and joined as a worker."""

    sink: Sink
    positions: WorkerPositions

    async def write(self, shard_id: str, *numbers: int) -> None:
        await self.sink.write(batch_of(shard_id, *numbers))

    async def is_fenced(self, *shards: str) -> bool:
        try:
            await self.positions.commit(_state(99), shards)
        except FencedError:
            return True
        return False


def on_worker(test: Callable[[Any, SinkCase, _Process], Awaitable[None]]) -> Callable[[Contract[SinkCase]], None]:
    """A test that is a coroutine function of a case and of a process, which has joined the group."""

    @wraps(test)
    async def with_worker(contract: WorkerPositionsContract, case: SinkCase) -> None:
        if case.start().worker_positions() is None:
            return
        first = await _joined(case, "first")
        await test(contract, case, first)
        await first.sink.close()

    return on_case(with_worker)


class WorkerPositionsContract(Contract[SinkCase]):
    """The tests. They pass for a sink whose `worker_positions` returns None: such a sink keeps no positions, or refuses ELASTIC."""

    @on_worker
    async def test_rows_and_positions_of_a_worker_are_committed_together(self, case: SinkCase, first: _Process) -> None:
        """What was written of the named shards, and nothing of others."""
        await first.write("a", 1, 2)
        await first.write("b", 3)
        assert list(await case.written()) == [], "rows are committed with positions only"
        await first.positions.commit(_state(2), [_A])
        assert list(await case.written()) == [b"1", b"2"]
        assert await first.positions.read("first") == _state(2)
        await first.write("a", 4)
        await first.positions.commit(_state(4), [_A, _B])
        assert sorted(await case.written()) == [b"1", b"2", b"3", b"4"]
        assert await first.positions.read("first") == _state(4)

    @on_worker
    async def test_positions_are_committed_without_rows(self, case: SinkCase, first: _Process) -> None:
        """A worker prepares shards that it takes, while it reads others."""
        await first.write("a", 1)
        await first.positions.commit(_state(0), [])
        assert list(await case.written()) == []
        await first.positions.commit(_state(1), None)
        assert list(await case.written()) == [b"1"]

    @on_worker
    async def test_rows_of_a_revoked_shard_are_dropped(self, case: SinkCase, first: _Process) -> None:
        """Its next reader writes them."""
        await first.write("a", 1)
        await first.write("b", 2)
        first.sink.revoked([_A])
        await first.positions.commit(_state(2), [_A, _B])
        assert list(await case.written()) == [b"2"]

    @on_worker
    async def test_a_sealed_worker_commits_nothing(self, case: SinkCase, first: _Process) -> None:
        """Neither rows nor positions; what was sealed never changes."""
        await first.write("a", 1)
        await first.positions.commit(_state(1), [_A])
        second = await _joined(case, "second")
        assert await second.positions.seal("first") == _state(1)
        await first.write("a", 2)
        assert await first.is_fenced(_A), "the commit of a sealed worker must raise FencedError"
        assert await second.positions.seal("first") == _state(1)
        await second.write("a", 2)
        await second.positions.commit(_state(2), [_A])
        assert list(await case.written()) == [b"1", b"2"]
        await second.sink.close()

    @on_worker
    async def test_a_sealed_process_goes_on_as_a_new_worker(self, case: SinkCase, first: _Process) -> None:
        """With the same sink. What the old worker had not committed is dropped."""
        await first.write("a", 1)
        await first.positions.commit(_state(1), [_A])
        await first.positions.seal("first")
        await first.write("a", 2)
        assert await first.is_fenced(_A), "the commit of a sealed worker must raise FencedError"
        await first.positions.join("again")
        await first.write("a", 3)
        await first.positions.commit(_state(3), [_A])
        assert list(await case.written()) == [b"1", b"3"]
        assert await first.positions.read("again") == _state(3)

    @on_worker
    async def test_a_forgotten_worker_commits_nothing(self, case: SinkCase, first: _Process) -> None:
        """A commit never creates its entry."""
        await first.positions.commit(_state(0), [])
        second = await _joined(case, "second")
        await second.positions.seal("first")
        await second.positions.forget("first")
        assert await second.positions.read("first") is None
        await first.write("a", 1)
        assert await first.is_fenced(_A), "the commit of a forgotten worker must raise FencedError"
        assert await second.positions.read("first") is None
        assert list(await case.written()) == []
        await second.sink.close()

    @on_worker
    async def test_workers_without_positions_can_be_sealed(self, case: SinkCase, first: _Process) -> None:
        """One that has committed nothing yet, and one that nobody knows."""
        await first.positions.join("first")
        assert await first.positions.read("first") is None
        assert await first.positions.seal("first") is None
        assert await first.is_fenced(), "the commit of a sealed worker must raise FencedError"
        assert await first.positions.seal("nobody") is None
        await first.positions.forget("nobody")

    @on_worker
    async def test_a_worker_that_joins_once_more_commits_on(self, case: SinkCase, first: _Process) -> None:
        """The answer of its first attempt was lost: nothing of what it commits later may be taken for an earlier commit."""
        await first.positions.commit(_state(0), [])
        await first.positions.join("first")
        await first.write("a", 1)
        await first.positions.commit(_state(1), [_A])
        assert list(await case.written()) == [b"1"]
        assert await first.positions.read("first") == _state(1)

    @on_worker
    async def test_positions_of_workers_and_of_subtasks_are_not_mixed(self, case: SinkCase, first: _Process) -> None:
        """A start with a fixed number of subtasks does not begin beside the positions of a group."""
        await first.positions.commit(_state(0), [])
        subtask = case.start()
        try:
            states = states_of(await subtask.open(SinkContext()))
        except Exception:  # noqa: S110 - whichever error says so
            pass
        else:
            assert states, "open must fail, or return the positions of the group"
        await subtask.close()


async def _joined(case: SinkCase, worker: str) -> _Process:
    sink = case.start()
    assert not states_of(await sink.open(SinkContext(is_elastic=True))), (
        "with ELASTIC assignment `open` returns no state"
    )
    positions = sink.worker_positions()
    assert positions is not None
    await positions.join(worker)
    return _Process(sink, positions)


def _state(position: int) -> State:
    return {"positions": [["orders/a", 1, {"position": str(position)}]]}
