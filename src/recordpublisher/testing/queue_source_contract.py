"""The contract of a source that acknowledges, such as a queue: tests that it must pass.

Subclass `QueueSourceContract`, provide a case, and run pytest.

class TestMessages(QueueSourceContract):
    @asynccontextmanager
    async def open_case(self):
        yield QueueSourceCase(lambda: Messages(properties), [b"one", b"two", ...], client.put)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any

from msgspec.structs import replace

from recordpublisher.publishers.base import QueueSource
from recordpublisher.publishers.records import RecordBatch, UserRecord

from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from .contract import Contract, Test, check_answers_for_doctor, check_arrival_times, on_case

CANCEL_AFTER_STEPS = (1, 3, 8)
"""After how many steps of the event loop the receives of a source without a network are cancelled."""
CANCEL_AFTER_PARTS = (0.3, 0.6, 0.9)
"""After which parts of the time of a whole receive the receives are cancelled, if it takes longer than `FAST_SECONDS`.

There are few of both, because a record that is received too often becomes a dead letter. Here that is at most five times.
"""
FAST_SECONDS = 0.005
"""A receive that takes longer than this (seconds) waits for a service, and is hardly begun after a few steps of the event loop."""


OLD_RECEIPT = (
    "`{}` with an old receipt has {} that another process has received since: compare the receipt, and not only the number of the "
    "record"
)


@dataclass(frozen=True, slots=True)
class QueueSourceCase:
    """A queue from which nothing was received yet.

    - `start`: makes a source, as each process does. The source's `visibility_seconds` must be more than four times the duration of an empty
      receive.
    - `payloads`: the payloads of its records. They must differ, and be enough for several receives.
    - `put`: adds a record with a payload. It may be a coroutine function.
    - `refuses_old_receipts`: whether only the newest receipt of a record counts. Set it to False if the service accepts older ones too. A
      process that was suspended may then release records that another process handles, and they are handled once more.
    - `stream`: the name of a stream for which `checks` finds no problem.
    """

    start: Callable[[], QueueSource]
    payloads: Sequence[bytes]
    put: Callable[[bytes], object]
    refuses_old_receipts: bool = True
    stream: str = "queue"


class _Process:
    """One process of the test, which receives records with one receiver."""

    def __init__(self, source: QueueSource) -> None:
        self.source = source
        self.receives: list[Sequence[UserRecord]] = []

    async def take(self, steps: int | None = None, seconds: float | None = None) -> list[UserRecord]:
        """Receive until the queue is empty, or for `steps` steps of the event loop, or for `seconds`.

        Return the records without their data, as a job keeps them.
        """
        taken = list[UserRecord]()

        async def receive() -> None:
            while records := await self.source.receive(ShardMetrics()):
                self.receives.append(records)
                taken.extend(replace(record, data=b"") for record in records)

        running = asyncio.ensure_future(receive())
        if steps is None:
            await asyncio.wait([running], timeout=seconds)
        for _ in range(steps or 0):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()
        return taken


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue, and two processes that read it."""

    first: _Process
    second: _Process
    visibility: float
    case: QueueSourceCase


def on_queue(test: Test[_Queue]) -> Callable[[Contract[QueueSourceCase]], None]:
    """Turn a test into a method that pytest runs. The test is a coroutine function with a queue as its argument."""

    @wraps(test)
    async def with_processes(contract: QueueSourceContract, case: QueueSourceCase) -> None:
        async with AsyncExitStack() as opened:
            processes = []
            for _ in range(2):
                source = case.start()
                opened.push_async_callback(source.close)
                await source.open()
                processes.append(_Process(source))
            first, second = processes
            await test(contract, _Queue(first, second, source.visibility_seconds, case))

    return on_case(with_processes)


class QueueSourceContract(Contract[QueueSourceCase]):
    """The tests of a source that acknowledges. Implement `open_case`.

    Override `execute` to run them on virtual time (`run_virtual`).
    """

    deadline = 60.0  # The tests wait until records that were not acknowledged are delivered again.

    @on_queue
    async def test_every_record_is_delivered(self, queue: _Queue) -> None:
        """Check that each record is delivered, with a sequence number of its own and its time of arrival.

        An empty receive must mean that no record is left.
        """
        assert queue.visibility > 0, "the source must set `visibility_seconds`"
        records = await queue.first.take()
        receives = queue.first.receives
        assert sorted(record.data for each in receives for record in each) == sorted(queue.case.payloads)
        check_arrival_times([RecordBatch(Shard("queue", "queue"), list(each)) for each in receives])
        assert len(_numbers(records)) == len(records), (
            "two records have the same sequence number: give each a number of its own"
        )
        assert len(receives) > 1, "the case must need more than one receive"
        assert max(map(len, receives)) <= queue.first.source.full_receive, (
            "a receive returned more than `full_receive` records: raise `full_receive`"
        )

    @on_queue
    async def test_what_doctor_asks_of_a_source_has_the_right_type(self, queue: _Queue) -> None:
        """Check `endpoint_url` and `checks`, which `recordpublisher doctor` calls. A check must not receive a record."""
        await check_answers_for_doctor(queue.first.source, queue.case.stream)
        assert len(await queue.first.take()) == len(queue.case.payloads), (
            "a check has received records, which the job misses"
        )

    @on_queue
    async def test_what_is_acknowledged_does_not_come_again(self, queue: _Queue) -> None:
        """Check that acknowledged records are not delivered again.

        They are acknowledged twice: it must not be an error if a record no longer exists.
        """
        records = await queue.first.take()
        _check_numbers("acknowledge", await queue.first.source.acknowledge(records))
        await queue.first.source.acknowledge(records)
        await asyncio.sleep(queue.visibility)
        assert await queue.second.take() == [], (
            "acknowledged records were delivered again: `acknowledge` must remove them from the queue"
        )

    @on_queue
    async def test_a_number_is_never_used_again(self, queue: _Queue) -> None:
        """Check that a new record does not get the sequence number of an acknowledged one. A job could take it for a duplicate."""
        records = await queue.first.take()
        await queue.first.source.acknowledge(records)
        put = queue.case.put(queue.case.payloads[0])
        if isinstance(put, Awaitable):
            await put
        later = await queue.first.take()
        assert len(later) == 1, "a record that was added later must be delivered exactly once"
        assert not _numbers(later) & _numbers(records), (
            "a new record has the sequence number of an acknowledged one: give it its own"
        )

    @on_queue
    async def test_what_is_not_acknowledged_comes_again_after_its_time(self, queue: _Queue) -> None:
        """Check that received records are delivered again after `visibility_seconds` if they are not acknowledged."""
        records = await queue.first.take()
        await queue.first.source.acknowledge(records[:1])
        assert await queue.second.take() == [], (
            "a record that one process has received was delivered again before `visibility_seconds`"
        )
        await asyncio.sleep(queue.visibility)
        assert _numbers(await queue.second.take()) == _numbers(records[1:])

    @on_queue
    async def test_what_is_released_comes_again_at_once(self, queue: _Queue) -> None:
        """Check that only released records are delivered again at once, and that their new receipts acknowledge them."""
        records = await queue.first.take()
        _check_numbers("release", await queue.first.source.release(records[:3]))
        again = await queue.second.take()
        assert _numbers(again) == _numbers(records[:3])
        await queue.second.source.acknowledge(again)
        await queue.first.source.acknowledge(records[3:])
        await asyncio.sleep(queue.visibility)
        assert await queue.first.take() == [], "a record must be gone after its newest delivery was acknowledged"

    @on_queue
    async def test_what_is_prolonged_stays_hidden(self, queue: _Queue) -> None:
        """Check that records stay hidden for `visibility_seconds` after a call of `prolong`."""
        records = await queue.first.take()
        await asyncio.sleep(queue.visibility / 2)
        _check_numbers("prolong", await queue.first.source.prolong(records[:2]))
        await asyncio.sleep(queue.visibility * 0.55)
        assert _numbers(await queue.second.take()) == _numbers(records[2:])

    @on_queue
    async def test_an_old_receipt_changes_nothing(self, queue: _Queue) -> None:
        """Check that a process changes nothing with the receipts of records that another process has received since.

        A process that was suspended for more than `visibility_seconds` may call `release`, `prolong` and `acknowledge` with them.
        """
        if not queue.case.refuses_old_receipts:
            return
        stale, source = await queue.first.take(), queue.first.source
        await asyncio.sleep(queue.visibility)
        numbers, expires = _numbers(await queue.second.take()), asyncio.get_running_loop().time() + queue.visibility
        assert numbers == _numbers(stale)
        await source.release(stale[:3])
        assert await queue.first.take() == [], OLD_RECEIPT.format("release", "made records visible")
        await asyncio.sleep(queue.visibility / 4)
        await source.prolong(stale[3:6])
        await source.acknowledge(stale[6:9])
        await asyncio.sleep(expires - asyncio.get_running_loop().time())
        missing = numbers - _numbers(await queue.first.take())
        assert not missing & _numbers(stale[3:6]), OLD_RECEIPT.format("prolong", "hidden records for longer")
        assert not missing, OLD_RECEIPT.format("acknowledge", "removed records")

    @on_queue
    async def test_a_cancelled_receive_hides_nothing(self, queue: _Queue) -> None:
        """Check that the records of a cancelled receive are delivered again at once, before `visibility_seconds` are over."""
        now = asyncio.get_running_loop().time
        began, source = now(), queue.first.source
        received = await source.receive(ShardMetrics())
        took = now() - began
        await source.release([replace(record, data=b"") for record in received])
        for steps, part in zip(CANCEL_AFTER_STEPS, CANCEL_AFTER_PARTS, strict=True):
            is_fast = took < FAST_SECONDS
            await source.release(await queue.first.take(steps if is_fast else None, None if is_fast else took * part))
        assert len(_numbers(await queue.second.take())) == len(queue.case.payloads), (
            "receives that were cancelled have hidden records: a cancelled `receive` must release what it has received"
        )
        assert now() - began < queue.visibility, "`visibility_seconds` is too short for this test: raise it"


def _check_numbers(method: str, failed: Any) -> None:
    """Check that a call has succeeded for all records.

    Raises: AssertionError if its result (`failed`) contains sequence numbers of records, or has the wrong type.
    """
    is_numbers = isinstance(failed, Collection) and not isinstance(failed, (str, bytes))
    assert failed is None or is_numbers, (
        f"`{method}` returned {failed!r}: return the numbers of the records that failed, or None"
    )
    assert not failed, f"`{method}` has failed for the records {', '.join(map(str, failed))}"


def _numbers(records: Sequence[UserRecord]) -> set[str]:
    return {record.sequence_number for record in records}
