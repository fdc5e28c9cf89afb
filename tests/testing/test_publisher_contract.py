"""A simple publisher passes the contract, and each kind of broken publisher fails one of its tests."""

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest

from recordpublisher import (
    PluginError,
    PositionType,
    Properties,
    RecordBatch,
    RecordPublisherFactory,
    RunResult,
    SequenceNumber,
    Shard,
    ShardMetrics,
    StreamNotFoundError,
)
from recordpublisher.publishers.properties import declaration
from recordpublisher.publishers.shards import OldestRecord
from recordpublisher.testing import PublisherCase, PublisherContract

from fakes.list_publisher import ARRIVAL, PAYLOADS, ListContract, ListPublisher, SwallowsErrors
from processes.command_line import ROOT


class TestAPublisherOfAList(ListContract):
    """The contract, on virtual time."""


async def _no_longer_listed(factory, stream, listed):
    return [Shard(stream, "-1", closed=True, is_unlisted=True)]


async def _oldest(factory, shard):
    return OldestRecord("1", int(ARRIVAL * 1000))


async def _retained(factory, stream):
    return int(ARRIVAL * 1000)


class TestAPublisherThatHasOlderShards(ListContract):
    """The contract with each optional method of a factory."""

    ports: ClassVar = {"unlisted_shards": _no_longer_listed, "oldest_record": _oldest, "oldest_retained_ms": _retained}


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
        from sample_publisher.factory import LinesFactory

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


class ReversesBatches(ListPublisher):
    """Returns the records of each batch in reverse order."""

    def batch(self):
        batch = super().batch()
        return replace(batch, records=list(reversed(batch.records)))


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

    def place_of(self, start):
        place = super().place_of(start)
        return place + bool(place)


class StartsAtAsAfter(ListPublisher):
    """Leaves out the record at which it starts."""

    def place_of(self, start):
        return super().place_of(start) + (start.type is PositionType.AT_SEQUENCE_NUMBER)


class StartsAtTheBeginning(ListPublisher):
    """Does not know a start AT a record."""

    def place_of(self, start):
        return 0 if start.type is PositionType.AT_SEQUENCE_NUMBER else super().place_of(start)


class StartsAfterAsAt(ListPublisher):
    """Repeats the record after which it starts."""

    def place_of(self, start):
        return super().place_of(start) - (start.type is PositionType.AFTER_SEQUENCE_NUMBER)


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
        (StartsAfterAsAt, "test_a_new_publisher_starts_after_any_position"),
        (StartsAtAsAfter, "test_a_new_publisher_starts_at_any_record"),
        (StartsAtTheBeginning, "test_a_new_publisher_starts_at_any_record"),
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


class IgnoresTimes(ListPublisher):
    """Starts at the oldest record wherever it should start by time."""

    def place_of(self, start):
        return 0 if start.type is PositionType.AT_TIMESTAMP else super().place_of(start)


class IgnoresLatest(ListPublisher):
    """Starts at the oldest record instead of the tip."""

    def place_of(self, start):
        return 0 if start.type is PositionType.LATEST else super().place_of(start)


class CountsNoReads(ListPublisher):
    """Leaves the metrics alone."""

    async def run(self, consumer):
        self.metrics = ShardMetrics()
        return await super().run(consumer)


class HasNoRawCount(ListPublisher):
    """Gives batches that hold nothing of the source."""

    def batch(self):
        return replace(super().batch(), raw_count=0)


class HasNoRawBytes(ListPublisher):
    """Gives batches without a size."""

    def batch(self):
        return replace(super().batch(), raw_bytes=0)


class BlocksTheLoop(ListPublisher):
    """Waits for its source in the event loop."""

    def batch(self):
        time.sleep(0.11)  # what is tested is real time
        return super().batch()


class NeverBringsABatch(ListPublisher):
    """Returns at once while there is nothing to read."""

    async def run(self, consumer):
        return RunResult.INCOMPLETE


class ReturnsNone(ListPublisher):
    """Ends without a result."""

    async def run(self, consumer):
        await super().run(consumer)


class NeverReturns(ListPublisher):
    """Waits after its last batch."""

    async def run(self, consumer):
        await super().run(consumer)
        await asyncio.Event().wait()


class CountsDown(ListPublisher):
    """Has sequence numbers that go backwards, so that it believes to be at the end after its first batch."""

    def batch(self):
        batch = super().batch()
        return replace(batch, read_position=SequenceNumber("99"))


class HasTextAsPosition(ListPublisher):
    """Gives the position as a text."""

    def batch(self):
        return replace(super().batch(), read_position="3")


class GivesNone(ListPublisher):
    """Gives None when there is nothing to read."""

    async def run(self, consumer):
        await consumer(None)
        return await super().run(consumer)


class HasGenerator(ListPublisher):
    """Gives its records as a generator."""

    def batch(self):
        batch = super().batch()
        return replace(batch, records=(record for record in batch.records))


class HasNoKeys(ListPublisher):
    """Gives records without a partition key."""

    def batch(self):
        batch = super().batch()
        return replace(batch, records=[msgspec.structs.replace(each, partition_key=None) for each in batch.records])


def test_a_publisher_that_gives_a_generator_fails_with_a_sentence():
    class Broken(ListContract):
        publisher = HasGenerator

    with pytest.raises(PluginError, match="of the type generator: give a list of UserRecord"):
        Broken().test_batches_come_in_shard_order_and_end_in_complete()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            HasTextAsPosition,
            "with `read_position` of s/0 that is '3', of the type str: it must be SequenceNumber or None",
        ),
        (HasNoKeys, "record 1 has no partition key"),
        (GivesNone, "the publisher gave None: the consumer must be called with a RecordBatch"),
        (
            NeverReturns,
            r"the test has not ended after 10 s: a call .* It waits at \S+test_publisher_contract.py:\d+ \(run\)",
        ),
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


@pytest.mark.parametrize(
    ("broken", "test", "message"),
    [
        (
            NeverBringsABatch,
            "test_batches_come_in_shard_order_and_end_in_complete",
            "100 times in a row without a batch",
        ),
        (CountsDown, "test_the_case_needs_several_batches", "3 of 10 records came"),
        (IgnoresTimes, "test_a_start_by_time_leaves_out_what_arrived_before", "from a start AT_TIMESTAMP"),
        (IgnoresLatest, "test_a_start_at_the_tip_leaves_out_what_is_there", "a start at LATEST gave"),
        (CountsNoReads, "test_reads_are_counted", "no read was counted"),
        (HasNoRawCount, "test_reads_are_counted", "no batch has a `raw_count`"),
        (HasNoRawBytes, "test_reads_are_counted", "no batch has `raw_bytes`"),
        (BlocksTheLoop, "test_the_loop_is_not_blocked", r"a run blocked the event loop for 0\.[0-9] s"),
    ],
)
def test_what_a_job_would_not_show_fails_with_a_sentence(broken, test, message):
    class Broken(ListContract):
        publisher = broken

    with pytest.raises(AssertionError, match=message):
        getattr(Broken(), test)()


class BelievesInLoss(ListPublisher):
    """Leaves records out once it has heard that nothing was lost."""

    def set_seen(self, seen_ms):
        self.at += seen_ms is not None


async def _open_shards(factory, stream, listed):
    return [Shard(stream, "-1")]


async def _later_record(factory, shard):
    return OldestRecord("2", int(ARRIVAL * 1000))


async def _a_number(factory, what):
    return 1.5


@pytest.mark.parametrize(
    ("ports", "test", "message"),
    [
        (
            {"unlisted_shards": _open_shards},
            "test_shards_that_the_stream_no_longer_lists_are_closed",
            "set `closed` and",
        ),
        ({"oldest_record": _later_record}, "test_the_oldest_record_is_not_behind_the_first_one", "first record '1'"),
        (
            {"oldest_record": _a_number},
            "test_the_oldest_record_is_not_behind_the_first_one",
            "return an OldestRecord, or None",
        ),
        (
            {"oldest_retained_ms": _a_number},
            "test_the_oldest_record_is_not_behind_the_first_one",
            "return epoch ms as an int",
        ),
        ({}, "test_it_reads_everything_whatever_it_hears_of_lost_records", None),
    ],
)
def test_a_wrong_optional_method_fails_with_a_sentence(ports, test, message):
    class Broken(ListContract):
        publisher = ListPublisher if ports else BelievesInLoss

    Broken.ports = ports
    with pytest.raises((AssertionError, PluginError), match=message):
        getattr(Broken(), test)()


class GivesEmptyBatches(ListPublisher):
    async def run(self, consumer):
        while True:
            await consumer(RecordBatch(self.shard, []))


class EmptyContract(ListContract):
    __test__ = False
    publisher = GivesEmptyBatches


def test_a_publisher_that_gives_empty_batches_without_waiting_fails_with_a_sentence():
    with pytest.raises(
        AssertionError, match="batches in a row without a record, within a second: wait in `run` for records"
    ):
        EmptyContract().test_batches_come_in_shard_order_and_end_in_complete()


class ListsItsShards(RecordPublisherFactory):
    """Lists the shard of the case as closed, and one that it lists as open and whose reader ends."""

    ends = True

    async def create(self, shard, starting_position, metrics):
        publisher = ListPublisher(shard, starting_position, metrics)
        if shard.shard_id == "1" and not self.ends:
            publisher.run = self.wait
        return publisher

    async def wait(self, consumer):
        await asyncio.sleep(3600)

    async def discover(self, stream):
        return [Shard(stream, "0", closed=True), Shard(stream, "1"), *self.more(stream)]

    def more(self, stream):
        return ()


class Waits(ListsItsShards):
    ends = False


class HasChildren(ListsItsShards):
    def more(self, stream):
        return [Shard(stream, "2", parents=("1",), closed=True)]


class KnowsTheEnd(ListsItsShards):
    ends_open_shards = True


class MakesNothing(ListsItsShards):
    async def create(self, shard, starting_position, metrics):
        pass


class KnowsItsStream(ListsItsShards):
    async def discover(self, stream):
        if stream != "s":
            self.meet_unknown(stream)
            return []
        return await super().discover(stream)

    def meet_unknown(self, stream):
        raise StreamNotFoundError(stream)


class RaisesAnother(KnowsItsStream):
    def meet_unknown(self, stream):
        raise FileNotFoundError(stream)


def contract_of(factory):
    class Listed(ListContract):
        @asynccontextmanager
        async def open_case(self):
            yield PublisherCase(factory(), Shard("s", "0"), PAYLOADS)

    return Listed()


def test_a_run_that_ends_while_its_shard_is_listed_as_open_fails():
    message = "`run` returned COMPLETE for s/1, which `discover` lists as open and without children"
    with pytest.raises(AssertionError, match=message):
        contract_of(ListsItsShards).test_a_shard_that_is_listed_as_open_does_not_end()


@pytest.mark.parametrize("factory", [Waits, HasChildren, KnowsTheEnd])
def test_a_run_may_end_if_the_listing_shows_it_or_need_not(factory):
    contract_of(factory).test_a_shard_that_is_listed_as_open_does_not_end()


@pytest.mark.parametrize("factory", [KnowsItsStream, ListsItsShards])
def test_a_stream_may_not_exist_or_each_name_is_one(factory):
    contract_of(factory).test_discovery_lists_the_shard_once()


def test_a_stream_that_does_not_exist_must_be_told_by_an_error_of_this_library():
    words = "raised FileNotFoundError: s-that-does-not-exist: raise StreamNotFoundError"
    with pytest.raises(AssertionError, match=f"`discover` of a stream that does not exist {words}"):
        contract_of(RaisesAnother).test_discovery_lists_the_shard_once()


def test_a_factory_that_makes_no_publisher_fails_with_a_sentence():
    with pytest.raises(PluginError, match=r"MakesNothing\.create returned None for s/0: return a RecordPublisher"):
        contract_of(MakesNothing).test_batches_come_in_shard_order_and_end_in_complete()
