"""A publisher of a growing file passes the tests of open shards, and each kind of broken publisher fails one of them."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from recordpublisher import PositionType, RecordBatch, RecordPublisher, RunResult, SequenceNumber, Shard, UserRecord
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.testing import PublisherCase, PublisherContract, run_virtual

ARRIVAL = 1_790_000_000.0
PAYLOADS = [b"line %d" % number for number in range(7)]
ENDED, GROWING = Shard("orders", "ended", closed=True), Shard("orders", "growing")


class GrowingPublisher(RecordPublisher):
    """Reads lines of a file that grows, two at a time."""

    pause, tip = 0.2, 0

    def __init__(self, file, shard, start, metrics):
        self.file, self.shard, self.metrics = file, shard, metrics
        self.done = self.place_of(start)

    def place_of(self, start):
        match start.type:
            case PositionType.AFTER_SEQUENCE_NUMBER:
                return int(start.sequence_number)
            case PositionType.AT_SEQUENCE_NUMBER:
                return int(start.sequence_number) - 1
            case PositionType.TRIM_HORIZON:
                return 0
        is_over = start.type is PositionType.LATEST or start.timestamp_ms > ARRIVAL * 1000
        return len(self.lines()) if is_over else 0

    def lines(self):
        return bytes(self.file).split(b"\n")[:-1]

    async def run(self, consumer):
        while True:
            lines = self.lines()
            batch = self.batch(lines[self.done : self.done + 2], self.done + 2 >= len(lines))
            self.metrics.count_read(batch)
            taken = await consumer(batch)
            self.done = int(taken.sequence) if taken is not None else self.done
            if self.is_at_end(lines):
                return RunResult.COMPLETE
            await self.wait()

    def is_at_end(self, lines):
        return self.shard.closed and self.done == len(lines)

    async def wait(self):
        await asyncio.sleep(self.pause)

    def batch(self, lines, is_at_tip):
        records = [UserRecord(line, str(number), ARRIVAL, "k") for number, line in enumerate(lines, self.done + 1)]
        last, size = SequenceNumber(str(self.done + len(lines))) if lines else None, sum(map(len, lines))
        behind = self.tip if is_at_tip else None
        return RecordBatch(self.shard, records, behind, last, raw_count=len(lines), raw_bytes=size)


class GrowingContract(PublisherContract):
    publisher = GrowingPublisher
    discovered = (ENDED, GROWING)
    case_fields = {}  # noqa: RUF012

    @asynccontextmanager
    async def open_case(self):
        files = {ENDED: bytearray(b"".join(payload + b"\n" for payload in PAYLOADS)), GROWING: bytearray()}
        publisher, discovered = self.publisher, self.discovered

        class Factory(RecordPublisherFactory):
            async def create(self, shard, starting_position, metrics):
                file = files[ENDED if shard.shard_id == "ended" else GROWING]
                return publisher(file, shard, starting_position, metrics)

            async def discover(self, stream):
                return [*discovered]

        async def put(payload):
            half = len(payload) // 2
            files[GROWING].extend(payload[:half])
            await asyncio.sleep(0.5)
            files[GROWING].extend(payload[half:] + b"\n")

        case = PublisherCase(Factory(), ENDED, PAYLOADS, open_shard=GROWING, put=put)
        yield replace(case, **self.case_fields)

    def execute(self, work):
        run_virtual(work)


class TestAPublisherOfAGrowingFile(GrowingContract):
    """The contract, on virtual time."""


class NeverSaysThatItIsAtTheTip(GrowingPublisher):
    tip = None


class TestAPublisherThatDoesNotKnowItsTip(GrowingContract):
    publisher = NeverSaysThatItIsAtTheTip
    case_fields = {"reports_tip": False}  # noqa: RUF012


class SaysSoOnlyWithRecords(GrowingPublisher):
    """Passes no empty batch."""

    def batch(self, lines, is_at_tip):
        return super().batch(lines, is_at_tip and bool(lines))


class SaysSoAlways(GrowingPublisher):
    def batch(self, lines, is_at_tip):
        return super().batch(lines, is_at_tip or not self.shard.closed)


class GivesHalfLines(GrowingPublisher):
    def lines(self):
        return bytes(self.file).splitlines()


class GivesTheRestOfALine(GrowingPublisher):
    """Reads from where its last read ended, in the middle of a line."""

    def __init__(self, *given):
        super().__init__(*given)
        self.byte = 0

    async def run(self, consumer):
        self.byte = max(self.byte, sum(len(line) + 1 for line in self.lines()[: self.done]))
        while True:
            lines = bytes(self.file[self.byte :]).splitlines(keepends=True)
            self.byte = len(self.file)
            await consumer(self.batch([line[:-1] for line in lines if line.endswith(b"\n")], True))
            self.done += sum(line.endswith(b"\n") for line in lines)
            if self.shard.closed:
                return RunResult.COMPLETE
            await self.wait()


class EndsAtTheTip(GrowingPublisher):
    def is_at_end(self, lines):
        return self.done == len(lines)


class EndsAfterAQuietSecond(GrowingPublisher):
    """Takes a shard for ended in which nothing came for a while."""

    quiet = 0.0

    async def wait(self):
        self.quiet += self.pause
        await super().wait()

    def is_at_end(self, lines):
        return super().is_at_end(lines) or (self.done == len(lines) and self.quiet > 0.9)


class ReadsOnlyOnce(GrowingPublisher):
    """Waits for a signal that does not come."""

    async def wait(self):
        if self.done == len(self.lines()) and self.lines():
            await asyncio.Event().wait()
        await super().wait()


class GivesTheLastLineTwice(GrowingPublisher):
    """Begins a line too early after it has waited."""

    async def wait(self):
        count = len(self.lines())
        await super().wait()
        if 1 < count < len(self.lines()):
            self.done -= 1


class StartsAtTheTipAfterACancellation(GrowingPublisher):
    async def run(self, consumer):
        try:
            return await super().run(consumer)
        except asyncio.CancelledError:
            self.is_new = False
            raise

    is_new = True

    def lines(self):
        found = super().lines()
        if not self.is_new:
            self.done, self.is_new = len(found), True
        return found


class LeavesItsWatch(GrowingPublisher):
    async def wait(self):
        self.watch = asyncio.create_task(asyncio.sleep(1000))
        await super().wait()


class SwallowsItsCancellation(GrowingPublisher):
    async def wait(self):
        with suppress(asyncio.CancelledError):
            await super().wait()


class AlwaysReturns(GrowingPublisher):
    """Leaves waiting to the job."""

    async def run(self, consumer):
        if self.done < len(self.lines()) or self.shard.closed:
            return await super().run(consumer)
        return RunResult.INCOMPLETE


class NamesTheOtherShard(GrowingPublisher):
    def batch(self, lines, is_at_tip):
        return replace(super().batch(lines, is_at_tip), shard=ENDED)


ARRIVE = "test_records_that_are_put_while_run_waits_arrive"
TIP = "test_a_publisher_that_has_read_everything_says_so"
RESUME = "test_a_run_that_was_cancelled_misses_nothing_that_was_put_since"


@pytest.mark.parametrize(
    ("broken", "test", "message"),
    [
        (NeverSaysThatItIsAtTheTip, TIP, "after all 0 records of the open shard orders/growing were read: .* Pass an empty batch"),
        (SaysSoOnlyWithRecords, TIP, "no batch had `millis_behind_latest` 0 within 5 s"),
        (SaysSoAlways, TIP, "has `millis_behind_latest` 0 although 4 records follow"),
        (GivesHalfLines, ARRIVE, "record 0 .* is b'lin', a part of b'line 0', which was put: give a record only when it is whole"),
        (GivesTheRestOfALine, ARRIVE, "record 0 .* is b'e 0', a part of b'line 0'"),
        (EndsAtTheTip, ARRIVE, "`run` returned COMPLETE for orders/growing, which is open"),
        (EndsAfterAQuietSecond, ARRIVE, "`run` returned COMPLETE for orders/growing, which is open"),
        (ReadsOnlyOnce, ARRIVE, r"record 1 .* has not arrived 5 s after .* It waits at \S+ \(wait\)"),
        (GivesTheLastLineTwice, ARRIVE, "of the open shard, record 2 .* is b'line 1', expected b'line 2': each record comes once"),
        (StartsAtTheTipAfterACancellation, RESUME, "after runs that were cancelled, record 1 .* has not arrived 5 s after"),
        (LeavesItsWatch, RESUME, "a run that was cancelled left the tasks"),
        (SwallowsItsCancellation, RESUME, "`run` swallowed its cancellation"),
        (AlwaysReturns, ARRIVE, "`run` returned INCOMPLETE 100 times in a row without a batch"),
        (NamesTheOtherShard, ARRIVE, "gave a batch of orders/ended"),
    ],
)  # fmt: skip
def test_a_broken_publisher_of_a_growing_shard_is_found(broken, test, message):
    class Broken(GrowingContract):
        publisher = broken

    with pytest.raises(AssertionError, match=message):
        getattr(Broken(), test)()


@pytest.mark.parametrize(
    ("discovered", "message"),
    [
        ([ENDED], r"`discover` lists \['ended'\], and not the open shard 'growing' of the case"),
        ([ENDED, replace(GROWING, closed=True)], "`discover` lists orders/growing as closed"),
    ],
)
def test_a_listing_that_ends_an_open_shard_is_found(discovered, message):
    contract = GrowingContract()
    contract.discovered = discovered

    with pytest.raises(AssertionError, match=message):
        contract.test_an_open_shard_is_listed_as_open()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"put": None}, "has an `open_shard`, and no `put`: give both"),
        ({"open_shard": None}, "has `put`, and no `open_shard`: give both"),
        ({"open_shard": ENDED}, "the `open_shard` of the case is closed"),
    ],
)
def test_a_case_gives_an_open_shard_and_how_it_grows(given, message):
    contract = GrowingContract()
    contract.case_fields = given

    with pytest.raises(AssertionError, match=message):
        getattr(contract, ARRIVE)()
