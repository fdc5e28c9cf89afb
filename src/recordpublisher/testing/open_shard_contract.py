"""The tests of a publisher whose shard grows. They are a part of `PublisherContract`, and run if the case has an `open_shard`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from itertools import cycle, islice
from types import TracebackType
from typing import Any

from recordpublisher.publishers.base import (
    RecordPublisher,
    RunResult,
    make_publisher,
    shards_listed_by,
)
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.user_code import waiting_line

from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from .contract import Contract, Test, on_case
from .publisher_runs import (
    PublisherCase,
    RecordingConsumer,
    WatchedConsumer,
    abandon,
    cancel_run,
    check_payloads,
    run_until_end,
)

PUT_RECORDS = 6
"""How many records each test puts."""
IDLE_SECONDS, SETTLE_SECONDS, PAUSE_SECONDS = 1.0, 0.5, 0.01
"""How long a publisher waits for the first record; how long a test waits for records that come twice; the pause between two checks (all in
seconds).
"""
CANCEL_AFTER_STEPS = (1, 8, 34)
"""After how many steps of the event loop runs are cancelled while a record is put."""


class _OpenShard:
    """The open shard of a case.

    - `payloads`: what the tests put, in this order.
    - `seconds`: how long a test waits for records, or for the tip.
    """

    def __init__(self, case: PublisherCase, shard: Shard, put: Callable[[bytes], object], seconds: float) -> None:
        self.case, self.shard, self._put, self._seconds = case, shard, put, seconds
        self.payloads = list(islice(cycle(case.payloads), PUT_RECORDS))

    async def put(self, *payloads: bytes) -> None:
        for payload in payloads:
            done = self._put(payload)
            if isinstance(done, Awaitable):
                await done

    async def publisher(self, start: StartingPosition | None = None) -> RecordPublisher:
        start = start or StartingPosition.trim_horizon()
        return await make_publisher(self.case.factory, self.shard, start, ShardMetrics())

    def reading(self, publisher: RecordPublisher, consumer: RecordingConsumer) -> _Reading:
        return _Reading(self.shard, publisher, consumer, self._seconds)


class _Reading:
    """A context manager that runs a publisher of an open shard in a task. At its end the run is cancelled, as when a job stops."""

    def __init__(self, shard: Shard, publisher: RecordPublisher, consumer: RecordingConsumer, seconds: float) -> None:
        self._shard, self._publisher, self._consumer, self._seconds = shard, publisher, consumer, seconds

    async def __aenter__(self) -> _Reading:
        self._watched = WatchedConsumer(self._consumer)
        self._running = asyncio.create_task(run_until_end(self._publisher, self._watched))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await abandon(self._running, self._watched)
            return
        if self._running.done():
            self._check_runs()
        await cancel_run(self._running, self._watched)

    async def idle(self, seconds: float) -> None:
        """Wait. Raises: AssertionError if the run ends, or breaks a rule; the errors of the run."""
        await self._until(lambda: False, seconds)

    async def arrive(self, payloads: Sequence[bytes], when: str = "") -> None:
        """Wait until the publisher has given as many records as there are payloads.

        `when`: what happened before, for the error.

        Raises: AssertionError if they do not arrive in time, or are not the payloads.
        """
        given = self._consumer.payloads
        arrived = await self._until(lambda: len(given) >= len(payloads), self._seconds)
        check_put(given, payloads if arrived else payloads[: len(given)], when)
        assert arrived, (
            f"{when}record {len(given)} (from 0) of the open shard {self._shard.key} has not arrived {self._seconds:g} s after it was put: "
            f"resume after the last record that the consumer accepted, and read again while the shard is open. {self._where()}"
        )

    async def say_that_all_is_read(self, count: int) -> None:
        """Wait for a batch that is 0 ms behind the tip, from the batch on with which `count` records were read.

        Raises: AssertionError if there is none in time.
        """
        if not await self._until(lambda: self._is_at_tip(count), self._seconds):
            raise AssertionError(
                f"no batch had `millis_behind_latest` 0 within {self._seconds:g} s after all {count} records of the open shard "
                f"{self._shard.key} were read: a run with `stop_at_tip` would not end, and the shard would never be idle. Pass an empty "
                "batch with millis_behind_latest=0 when everything is read. If the source cannot tell, give the case reports_tip=False. "
                f"{self._where()}"
            )

    def _is_at_tip(self, count: int) -> bool:
        read = 0
        for batch in self._consumer.batches:
            read += len(batch)
            if read >= count and batch.millis_behind_latest == 0:
                return True
        return False

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until `holds` returns True, for at most `seconds`. Return whether it did."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not holds():
            self._check_runs()
            if loop.time() >= end:
                return False
            await asyncio.sleep(PAUSE_SECONDS)
        return True

    def _check_runs(self) -> None:
        """Check that the run has neither ended nor broken a rule. Raises: AssertionError if it has; the errors of the run."""
        if self._watched.fault.done():
            raise AssertionError(self._watched.fault.result())
        if self._running.done():
            result = self._running.result()
            raise AssertionError(
                f"`run` returned {result.name} for {self._shard.key}, which is open: later records would never be read. Let `run` wait for "
                f"records, and return {RunResult.COMPLETE.name} only after the last record of a shard that has ended"
            )

    def _where(self) -> str:
        return f"It waits at {waiting_line(self._running)}"


def on_open_shard(test: Test[_OpenShard]) -> Callable[[Contract[PublisherCase]], None]:
    """Turn a test into a method that pytest runs. The test is a coroutine function with the open shard of the case as its argument.

    It is run only if the case has an open shard.
    """

    @wraps(test)
    async def if_given(contract: OpenShardContract, case: PublisherCase) -> None:
        if case.open_shard is None and case.put is None:
            return
        assert case.open_shard is not None, "the case has `put`, and no `open_shard`: give both, or neither"
        assert case.put is not None, "the case has an `open_shard`, and no `put`: give both, or neither"
        assert not case.open_shard.closed, f"the `open_shard` of the case is closed: {case.open_shard}"
        await test(contract, _OpenShard(case, case.open_shard, case.put, contract.deadline / 2))

    return on_case(if_given)


class OpenShardContract(Contract[PublisherCase]):
    """The tests of a publisher whose shard grows: they read the `open_shard` of the case, to which `put` adds records.

    Each of them passes if the case has no `open_shard`. They wait at most half of `deadline` for a record.
    """

    def is_of_source(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a task belongs to the source, such as a server that `open_case` has started. Default: False.

        Such a task may still run after a test.
        """
        return False

    @on_open_shard
    async def test_records_that_are_put_while_run_waits_arrive(self, opened: _OpenShard) -> None:
        """Check that a run waits while its shard has no further records, and gives each record that is put then, once, whole, in order."""
        consumer, (first, *others) = RecordingConsumer(), opened.payloads
        async with opened.reading(await opened.publisher(), consumer) as reading:
            await reading.idle(IDLE_SECONDS)
            check_put(consumer.payloads, [])
            await opened.put(first)
            await reading.arrive([first])
            await opened.put(*others)
            await reading.arrive(opened.payloads)
            await reading.idle(SETTLE_SECONDS)
        check_put(consumer.payloads, opened.payloads)
        wrong = [batch.shard.key for batch in consumer.batches if batch.shard.key != opened.shard.key]
        assert not wrong, (
            f"a publisher of {opened.shard.key} gave a batch of {wrong[0]}: give the batch the shard that `create` got"
        )

    @on_open_shard
    async def test_a_publisher_that_has_read_everything_says_so(self, opened: _OpenShard) -> None:
        """Check that a batch, which may be empty, is 0 ms behind the tip when everything was read, and none before.

        A run with `stop_at_tip` ends at such a batch. The shard is read when it is empty, and when it has records.
        """
        empty, consumer = RecordingConsumer(), RecordingConsumer()
        if opened.case.reports_tip:
            async with opened.reading(await opened.publisher(), empty) as reading:
                await reading.say_that_all_is_read(0)
        await opened.put(*opened.payloads)
        async with opened.reading(await opened.publisher(), consumer) as reading:
            await reading.arrive(opened.payloads)
            if opened.case.reports_tip:
                await reading.say_that_all_is_read(len(opened.payloads))
        read = 0
        for batch in consumer.batches:
            read += len(batch)
            left = len(opened.payloads) - read
            assert batch.millis_behind_latest != 0 or not left, (
                f"a batch of the open shard has `millis_behind_latest` 0 although {left} records follow: only a batch up to the last "
                "record is at the tip"
            )

    @on_open_shard
    async def test_a_run_that_was_cancelled_misses_nothing_that_was_put_since(self, opened: _OpenShard) -> None:
        """Check that a cancelled run leaves no task, and that the next one continues without a gap.

        Records are put while the run waits, while it is cancelled, and between two runs. The next run is one of the same publisher, and
        then one of a new publisher.
        """
        publisher, consumer = await opened.publisher(), RecordingConsumer()
        first, second, third, *others = opened.payloads
        async with opened.reading(publisher, consumer) as reading:
            await opened.put(first)
            await reading.arrive([first])
        # Only now, because the first run may have opened a connection that the factory keeps.
        before = asyncio.all_tasks()
        for steps, payload in zip(CANCEL_AFTER_STEPS, (second, third, others[0]), strict=True):
            async with opened.reading(publisher, consumer):
                putting = asyncio.create_task(opened.put(payload))
                for _ in range(steps):
                    await asyncio.sleep(0)
            await putting
        left = {task for task in asyncio.all_tasks() - before if not self.is_of_source(task)}
        assert not left, (
            f"a run that was cancelled left the tasks {left}: cancel and await them in a `finally` of `run`, or let "
            "`is_of_source` of the contract tell which tasks are those of a server of the test"
        )
        await opened.put(others[1])
        async with opened.reading(publisher, consumer) as reading:
            await reading.arrive(opened.payloads[:-1], "after runs that were cancelled, ")
        position = consumer.positions()[-1]
        await opened.put(others[2])
        async with opened.reading(await opened.publisher(StartingPosition.after(position)), consumer) as reading:
            await reading.arrive(opened.payloads, f"from a start after {position}, ")
            await reading.idle(SETTLE_SECONDS)
        check_put(consumer.payloads, opened.payloads, f"from a start after {position}, ")

    @on_open_shard
    async def test_an_open_shard_is_listed_as_open(self, opened: _OpenShard) -> None:
        """Check that `discover`, if the factory has one, lists the open shard, and as open, before and after records are put."""
        for payloads in ([], opened.payloads[:1]):
            await opened.put(*payloads)
            listed = await shards_listed_by(opened.case.factory, opened.shard.stream)
            if listed is None:
                return
            own = [shard for shard in listed if shard.key == opened.shard.key]
            names = [shard.shard_id for shard in listed]
            assert own, f"`discover` lists {names}, and not the open shard '{opened.shard.shard_id}' of the case"
            assert not own[0].closed, (
                f"`discover` lists {opened.shard.key} as closed: a job ends when every shard is closed and read, so list it with "
                "closed=True only once nothing more comes"
            )


def check_put(given: Sequence[bytes], put: Sequence[bytes], when: str = "") -> None:
    """Check that the publisher has given what was put. Raises: AssertionError that names the first wrong record."""
    for place, (payload, whole) in enumerate(zip(given, put, strict=False)):
        if payload != whole and payload in whole:
            raise AssertionError(
                f"{when}record {place} (from 0) is {payload!r:.100}, a part of {whole!r:.100}, which was put: give a record only when it "
                "is whole, and read a record that is not whole from its beginning next time"
            )
    check_payloads(given, put, f"{when}of the open shard, ")
