"""A simple publisher passes the contract, and each kind of broken publisher fails one of its tests."""

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import msgspec
import pytest

from recordpublisher import (
    PositionType,
    Properties,
    RecordBatch,
    RecordPublisher,
    RecordPublisherFactory,
    RunResult,
    SequenceNumber,
    Shard,
    UserRecord,
)
from recordpublisher.publishers.properties import declaration
from recordpublisher.testing import PublisherCase, PublisherContract, run_virtual

from processes.command_line import ROOT

ARRIVAL = 1_790_000_000.0
PAYLOADS = [b"%d" % number for number in range(10)]


class ListPublisher(RecordPublisher):
    """Reads a list, three records at a time."""

    def __init__(self, shard, start) -> None:
        self.shard = shard
        self.at = int(start.sequence_number) if start.type is PositionType.AFTER_SEQUENCE_NUMBER else 0

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            await asyncio.sleep(0.2)
            self.advance(await consumer(self.batch()))
        return RunResult.COMPLETE

    def advance(self, taken):
        self.at = self.at if taken is None else int(taken.sequence)

    def batch(self):
        records = [UserRecord(data, str(number), ARRIVAL) for number, data in enumerate(PAYLOADS, 1)][
            self.at : self.at + 3
        ]
        return RecordBatch(self.shard, records, None, SequenceNumber(records[-1].sequence_number))


class ListContract(PublisherContract):
    publisher = ListPublisher

    @asynccontextmanager
    async def open_case(self):
        publisher = self.publisher

        class Factory(RecordPublisherFactory):
            async def create(self, shard, starting_position, metrics):
                return publisher(shard, starting_position)

        yield PublisherCase(Factory(), Shard("s", "0"), PAYLOADS)

    def execute(self, work):
        run_virtual(work)


class TestAPublisherOfAList(ListContract):
    """The contract, on virtual time."""


class TestThePublisherOfLines(PublisherContract):
    """The contract for the sample plugin."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / "sample_publisher"))
        monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))  # the plugin declares its own in it
        (tmp_path / "orders").mkdir()
        (tmp_path / "orders" / "a.txt").write_bytes(b"".join(payload + b"\n" for payload in PAYLOADS))
        (tmp_path / "orders" / "b.txt").write_bytes(b"other\n")
        self.folder = tmp_path
        yield
        for module in [name for name in sys.modules if name.startswith("sample_publisher")]:
            del sys.modules[module]

    @asynccontextmanager
    async def open_case(self):
        from sample_publisher.lines import LinesFactory

        factory = LinesFactory(Properties({"flink.lines.folder": self.folder, "flink.lines.batch": 3}))
        yield PublisherCase(factory, Shard("orders", "a.txt"), PAYLOADS)


class IgnoresReturnedPosition(ListPublisher):
    """Continues after the batch and ignores what the consumer returns."""

    def advance(self, taken):
        self.at += 3


class SkipsRefusedBatch(ListPublisher):
    """Continues after the batch when the consumer returns None."""

    def advance(self, taken):
        self.at = self.at + 3 if taken is None else int(taken.sequence)


class OverlapsCalls(ListPublisher):
    """Calls the consumer again before it has returned."""

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            first, second = consumer(self.batch()), consumer(self.batch())
            self.advance((await asyncio.gather(first, second))[0])
        return RunResult.COMPLETE


class EndsCancelled(ListPublisher):
    """Returns CANCELLED at the end."""

    async def run(self, consumer):
        await super().run(consumer)
        return RunResult.CANCELLED


class LeaksTask(ListPublisher):
    """Leaves a task behind when it is cancelled."""

    async def run(self, consumer):
        self.task = asyncio.ensure_future(asyncio.sleep(1000))
        return await super().run(consumer)


class SwallowsErrors(ListPublisher):
    """Swallows errors of the consumer."""

    async def run(self, consumer):
        with suppress(Exception):
            return await super().run(consumer)
        return RunResult.COMPLETE


class ReversesBatches(ListPublisher):
    """Returns the records of each batch in reverse order."""

    def batch(self):
        batch = super().batch()
        return RecordBatch(batch.shard, list(reversed(batch.records)), None, batch.read_position)


class GivesMilliseconds(ListPublisher):
    """Gives times of arrival in ms, as Kafka has them."""

    arrival = 1000 * ARRIVAL

    def batch(self):
        batch = super().batch()
        return replace(batch, records=[msgspec.structs.replace(each, arrival=self.arrival) for each in batch.records])


class GivesNoArrival(GivesMilliseconds):
    """Gives no times of arrival."""

    arrival = None


class DividesByThousand(GivesMilliseconds):
    """Gives seconds as if they were ms."""

    arrival = ARRIVAL / 1000


class AlwaysAtTip(ListPublisher):
    """Reports every batch as the one at the tip."""

    def batch(self):
        return replace(super().batch(), millis_behind_latest=0)


class SkipsOneOnRestart(ListPublisher):
    """Starts one record late."""

    def __init__(self, shard, start) -> None:
        super().__init__(shard, start)
        self.at += bool(self.at)


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (IgnoresReturnedPosition, "test_it_resumes_from_the_returned_position"),
        (SkipsRefusedBatch, "test_a_refused_batch_comes_again"),
        (OverlapsCalls, "test_a_slow_consumer_is_the_back_pressure"),
        (EndsCancelled, "test_batches_come_in_shard_order_and_end_in_complete"),
        (LeaksTask, "test_a_cancelled_run_leaves_nothing_behind_and_can_resume"),
        (SwallowsErrors, "test_an_error_of_the_consumer_is_raised"),
        (ReversesBatches, "test_batches_come_in_shard_order_and_end_in_complete"),
        (ReversesBatches, "test_sequence_numbers_grow_in_the_factorys_order"),
        (GivesMilliseconds, "test_records_have_their_time_of_arrival"),
        (GivesNoArrival, "test_records_have_their_time_of_arrival"),
        (DividesByThousand, "test_records_have_their_time_of_arrival"),
        (AlwaysAtTip, "test_only_the_last_batch_is_at_the_tip"),
        (SkipsOneOnRestart, "test_a_new_publisher_starts_after_any_position"),
    ],
)
def test_a_broken_publisher_is_found(broken, test):
    contract = ListContract()
    contract.publisher = broken

    with pytest.raises(AssertionError):
        getattr(contract, test)()


class HasNoPosition(ListPublisher):
    """Gives batches without the position after them."""

    def batch(self):
        return replace(super().batch(), read_position=None)


class NeverAdvances(ListPublisher):
    """Gives the same batch for ever."""

    def advance(self, taken):
        pass


class ReturnsNone(ListPublisher):
    """Ends without a result."""

    async def run(self, consumer):
        await super().run(consumer)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (HasNoPosition, "a batch with records has no read_position"),
        (NeverAdvances, "the records up to 3 came twice"),
        (ReturnsNone, "`run` returned None, and not a RunResult"),
    ],
)
def test_a_publisher_that_would_go_on_for_ever_fails_with_a_sentence(broken, message):
    class Broken(ListContract):
        publisher = broken

    with pytest.raises(AssertionError, match=message):
        Broken().test_batches_come_in_shard_order_and_end_in_complete()
