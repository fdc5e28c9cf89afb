"""The contract holds for a plain publisher, and each way of breaking it is found."""

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

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
from recordpublisher.testing import PublisherCase, PublisherContract, run_virtual

from processes.command_line import ROOT

PAYLOADS = [b"%d" % number for number in range(10)]


class ListPublisher(RecordPublisher):
    """Reads a list, three records at a time."""

    def __init__(self, shard, start) -> None:
        self.shard = shard
        self.at = int(start.sequence_number) if start.type is PositionType.AFTER_SEQUENCE_NUMBER else 0

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            await asyncio.sleep(0.2)
            self.go_on(await consumer(self.batch()))
        return RunResult.COMPLETE

    def go_on(self, answered):
        self.at = self.at if answered is None else int(answered.sequence)

    def batch(self):
        records = [UserRecord(data, str(number)) for number, data in enumerate(PAYLOADS, 1)][self.at : self.at + 3]
        return RecordBatch(self.shard, records, None, SequenceNumber(records[-1].sequence_number))


class OnTheList(PublisherContract):
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


class TestAPublisherOfAList(OnTheList):
    """The contract, on virtual time."""


class TestThePublisherOfLines(PublisherContract):
    """The contract for the sample plugin."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / "sample_publisher"))
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


class Forgetful(ListPublisher):
    """Goes on behind the batch, whatever is answered."""

    def go_on(self, answered):
        self.at += 3


class Stubborn(ListPublisher):
    """Takes None for the end of the batch."""

    def go_on(self, answered):
        self.at = self.at + 3 if answered is None else int(answered.sequence)


class Hasty(ListPublisher):
    """Calls the consumer again before it has answered."""

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            first, second = consumer(self.batch()), consumer(self.batch())
            self.go_on((await asyncio.gather(first, second))[0])
        return RunResult.COMPLETE


class Endless(ListPublisher):
    """Says cancelled at the end."""

    async def run(self, consumer):
        await super().run(consumer)
        return RunResult.CANCELLED


class Litterer(ListPublisher):
    """Leaves a task behind when it is cancelled."""

    async def run(self, consumer):
        self.task = asyncio.ensure_future(asyncio.sleep(1000))
        return await super().run(consumer)


class Swallower(ListPublisher):
    """Swallows errors of the consumer."""

    async def run(self, consumer):
        with suppress(Exception):
            return await super().run(consumer)
        return RunResult.COMPLETE


class Backwards(ListPublisher):
    """Reads the wrong way round."""

    def batch(self):
        batch = super().batch()
        return RecordBatch(batch.shard, list(reversed(batch.records)), None, batch.read_position)


class Hopeful(ListPublisher):
    """Takes every batch for the last."""

    def batch(self):
        return replace(super().batch(), millis_behind_latest=0)


class Restarter(ListPublisher):
    """Starts one record late."""

    def __init__(self, shard, start) -> None:
        super().__init__(shard, start)
        self.at += bool(self.at)


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Forgetful, "test_it_goes_on_from_the_answered_position"),
        (Stubborn, "test_an_unanswered_batch_comes_again"),
        (Hasty, "test_a_slow_consumer_is_the_back_pressure"),
        (Endless, "test_batches_come_in_shard_order_and_end_in_complete"),
        (Litterer, "test_a_cancelled_run_leaves_nothing_behind_and_can_go_on"),
        (Swallower, "test_an_error_of_the_consumer_comes_out"),
        (Backwards, "test_batches_come_in_shard_order_and_end_in_complete"),
        (Backwards, "test_sequence_numbers_grow_in_the_factorys_order"),
        (Hopeful, "test_only_the_last_batch_stands_at_the_tip"),
        (Restarter, "test_a_new_publisher_starts_behind_any_position"),
    ],
)
def test_a_broken_publisher_is_found(broken, test):
    contract = OnTheList()
    contract.publisher = broken

    with pytest.raises(AssertionError):
        getattr(contract, test)()
