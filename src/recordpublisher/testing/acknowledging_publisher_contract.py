"""The contract of publishers without positions, such as those of queues, as tests. Subclass `AcknowledgingPublisherContract`.

class TestMessages(AcknowledgingPublisherContract):
    @asynccontextmanager
    async def open_case(self):
        yield AcknowledgingPublisherCase(lambda: MessagesFactory(properties), Shard("work", "receiver-0"), [b"one", b"two", ...])
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import wraps

from msgspec.structs import replace

from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, own_shards
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from .contract import Contract, Test, check_arrival_times, on_case

CANCEL_AFTER_STEPS = (1, 3, 8, 21)
"""With these a record is received five times at most, which makes it no dead letter anywhere by default."""


@dataclass(frozen=True, slots=True)
class AcknowledgingPublisherCase:
    """`start` makes a factory, as each process has one, with a `visibility_seconds` of more than four times what an empty receive takes.

    The source has just these payloads, all different, for several receives of this receiver. Nobody has received them.
    """

    start: Callable[[], RecordPublisherFactory]
    shard: Shard
    payloads: Sequence[bytes]


class _Process:
    """A process with one receiver."""

    def __init__(self, publisher: RecordPublisher) -> None:
        self.publisher = publisher
        self.batches: list[RecordBatch] = []

    async def take(self, steps: int | None = None) -> list[UserRecord]:
        """Receive until an empty batch at the tip, or for so many steps of the loop. Returns the records, as the job keeps them."""
        taken, is_over = list[UserRecord](), asyncio.Event()

        async def consumer(batch: RecordBatch) -> None:
            assert batch.read_position is None, "a source without positions has no read_position"
            self.batches.append(batch)
            taken.extend(replace(record, data=b"") for record in batch.records)
            if not len(batch) and batch.millis_behind_latest == 0:
                is_over.set()
                await asyncio.Event().wait()

        running = asyncio.ensure_future(self.publisher.run_observed(consumer))
        running.add_done_callback(lambda _: is_over.set())
        if steps is None:
            await is_over.wait()
        for _ in range(steps or 0):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()
        return taken


@dataclass(frozen=True, slots=True)
class _Source:
    """A source with two processes that read it."""

    first: _Process
    second: _Process
    visibility: float
    payloads: Sequence[bytes]


def on_source(test: Test[_Source]) -> Callable[[Contract[AcknowledgingPublisherCase]], None]:
    """A test that is a coroutine function of two processes."""

    @wraps(test)
    async def with_processes(contract: AcknowledgingPublisherContract, case: AcknowledgingPublisherCase) -> None:
        async with AsyncExitStack() as opened:
            processes = []
            for _ in range(2):
                factory = case.start()
                opened.push_async_callback(factory.close)
                made = await factory.create(case.shard, StartingPosition.trim_horizon(), ShardMetrics())
                processes.append(_Process(made))
            first, second = processes
            await test(contract, _Source(first, second, factory.visibility_seconds or 0.0, case.payloads))

    return on_case(with_processes)


class AcknowledgingPublisherContract(Contract[AcknowledgingPublisherCase]):
    """The tests. Implement `open_case`; override `execute` to run them on virtual time (`run_virtual`)."""

    @on_source
    async def test_every_record_is_delivered(self, source: _Source) -> None:
        """Each with a number of its own, and without a position. An empty batch at the tip says that nothing is left."""
        assert source.visibility > 0, "the factory must set `visibility_seconds`"
        records = await source.first.take()
        assert sorted(data for batch in source.first.batches for data in batch.data) == sorted(source.payloads)
        check_arrival_times(source.first.batches)
        assert len(_numbers(records)) == len(records), "two records have the same sequence number"
        assert sum(len(batch) > 0 for batch in source.first.batches) > 1, "the case must need more than one receive"

    @on_source
    async def test_what_is_acknowledged_does_not_come_again(self, source: _Source) -> None:
        """That a record is gone is no error: it is acknowledged twice here."""
        records = await source.first.take()
        for _ in range(2):
            await source.first.publisher.acknowledge(records)
        await asyncio.sleep(source.visibility)
        assert await source.second.take() == [], "acknowledged records came again"

    @on_source
    async def test_what_is_not_acknowledged_comes_again_after_its_time(self, source: _Source) -> None:
        """Its process was killed."""
        records = await source.first.take()
        await source.first.publisher.acknowledge(records[:1])
        assert await source.second.take() == [], "what one process holds came to another"
        await asyncio.sleep(source.visibility)
        assert _numbers(await source.second.take()) == _numbers(records[1:])

    @on_source
    async def test_what_is_released_comes_again_at_once(self, source: _Source) -> None:
        """And nothing else; the newest delivery acknowledges it."""
        records = await source.first.take()
        await source.first.publisher.release(records[:3])
        again = await source.second.take()
        assert _numbers(again) == _numbers(records[:3])
        await source.second.publisher.acknowledge(again)
        await source.first.publisher.acknowledge(records[3:])
        await asyncio.sleep(source.visibility)
        assert await source.first.take() == [], "the newest delivery must acknowledge a record"

    @on_source
    async def test_what_is_prolonged_stays_hidden(self, source: _Source) -> None:
        """For `visibility_seconds` from the call on."""
        records = await source.first.take()
        await asyncio.sleep(source.visibility / 2)
        await source.first.publisher.prolong(records[:2])
        await asyncio.sleep(source.visibility * 0.55)
        assert _numbers(await source.second.take()) == _numbers(records[2:])

    @on_source
    async def test_a_cancelled_run_hides_nothing(self, source: _Source) -> None:
        """What a receive brings that is under way comes again at once, and not after its time."""
        began = asyncio.get_running_loop().time()
        for steps in CANCEL_AFTER_STEPS:
            await source.first.publisher.release(await source.first.take(steps))
        assert len(_numbers(await source.second.take())) == len(source.payloads), (
            "cancelled receives have hidden records"
        )
        assert asyncio.get_running_loop().time() - began < source.visibility, "`visibility_seconds` is too short"

    @on_case
    async def test_discovery_lists_the_receiver_once(self, case: AcknowledgingPublisherCase) -> None:
        """Else the job would ask Kinesis for shards."""
        factory = case.start()
        listed = await own_shards(factory, case.shard.stream, None)
        assert listed is not None, "`discover` must list the receivers"
        assert [shard.shard_id for shard in listed].count(case.shard.shard_id) == 1
        assert await factory.discover(case.shard.stream, listed[-1].shard_id) == []
        await factory.close()


def _numbers(records: Sequence[UserRecord]) -> set[str]:
    return {record.sequence_number for record in records}
