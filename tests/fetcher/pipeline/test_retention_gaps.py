"""S5: records that passed the retention unread are named while the job runs and at its start; a quiet stream is no gap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.pipeline.retention_gaps import RetentionGaps
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.shards.shard_entry import ShardEntry
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from fakes.shard_entries import START, entry, shard

HOUR = 3_600.0
SHARD = "orders/shardId-000000000000"
CONTINUE = {"flink.state.dataloss": "CONTINUE"}
PUBLISHERS = pytest.mark.parametrize("publisher", ["POLLING", "EFO"])


class Job:
    """A fetcher over the embedded endpoint, on virtual time; `run` starts it anew from its last snapshot."""

    def __init__(self, publisher: str, properties: dict[str, Any] | None = None, retention_hours: int = 24) -> None:
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=100), None)
        self.stream = self.account.create_stream("orders", 1)
        self.stream.retention_hours = retention_hours
        self.sink = RecordingSink()
        self.snapshots: list[dict[str, Any]] = []
        self.metrics: dict[str, Any] = {}
        self.is_complete = False
        given = {
            "aws.region": "us-east-1",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "c",
        }
        self.properties = Properties({**given, "flink.stream.recordpublisher": publisher, **(properties or {})})
        self.put(0)

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.sink.rows]

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.stream.put(str(number).encode(), "k")

    def suspend(self, seconds: float, *, put_halfway: tuple[int, ...] = ()) -> None:
        """The process is stopped; records come while it is."""
        loop: Any = asyncio.get_running_loop()
        loop.suspend(seconds / 2)
        self.put(*put_halfway)
        loop.suspend(seconds / 2)

    async def run(self, script: Callable[[], Awaitable[None]], bounds: Bounds | None = None) -> None:
        given = self.properties
        fetcher = fetcher_over(
            MemoryTransport(self.account), given, self.sink, VirtualClock(), restore=tuple(self.snapshots)
        )
        try:
            await fetcher.open()
            running = asyncio.create_task(fetcher.run_bounded(bounds or Bounds()))
            working = asyncio.ensure_future(script())
            await asyncio.wait([running, working], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
                await asyncio.sleep(30)  # what comes, comes now
            self.is_complete = running.done()
            working.cancel()
            self.metrics = fetcher.metrics()["shards"][SHARD]
            fetcher.stop()
            await running
            self.snapshots = [fetcher.snapshot()]
        finally:
            await fetcher.close()


@PUBLISHERS
def test_a_process_that_was_stopped_past_the_retention_names_the_gap(publisher):
    job = Job(publisher)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(50 * HOUR, put_halfway=(1, 2))
        job.put(3)

    with pytest.raises(DataLossError, match=rf"{SHARD} after \d+.*flink.state.dataloss=CONTINUE"):
        run_virtual(job.run(script))
    assert job.numbers == [0]


@PUBLISHERS
def test_a_job_that_accepts_the_loss_counts_it_and_reads_on(publisher, caplog):
    job = Job(publisher, CONTINUE)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(50 * HOUR, put_halfway=(1, 2))
        job.put(3)

    run_virtual(job.run(script))

    assert job.numbers == [0, 3]
    assert (job.metrics["retentionGaps"], job.metrics["retentionNotChecked"]) == (1, 0)
    assert f"records of {SHARD}" in caplog.text
    assert "Set flink.state.dataloss" not in caplog.text  # it is set


@pytest.mark.slow
def test_a_reader_that_its_sink_holds_past_the_retention_names_the_gap():
    rare = {
        "flink.watermark.sync.interval": 600_000,
        "flink.alarm.interval": -1,
        "flink.shard.discovery.intervalmillis": -1,
    }
    job = Job("POLLING", {"flink.shard.queue.records": 1, "flink.shard.getrecords.maxrecordcount": 1, **rare})
    write, stalls = job.sink.write, [25 * HOUR]

    async def slow(batch: Any) -> None:
        if stalls:
            await asyncio.sleep(stalls.pop())
        await write(batch)

    job.sink.write = slow  # type: ignore[method-assign]

    async def script() -> None:
        await asyncio.sleep(10)
        job.put(1, 2, 3, 4)  # one of them is queued before the reader waits for memory
        await asyncio.sleep(10 * HOUR)
        job.put(5, 6)
        await asyncio.sleep(16 * HOUR)

    with pytest.raises(DataLossError, match=SHARD):
        run_virtual(job.run(script))


def end_after(job: Job, seconds: float) -> Bounds:
    """A run that ends at the first record that arrives this long from now or later."""
    return Bounds(ends={SHARD: EndPosition(job.account.clock.now_ms() + int(seconds * 1000))})


@PUBLISHERS
def test_a_run_whose_next_record_is_behind_its_end_names_the_gap_before_it(publisher):
    job = Job(publisher)
    bounds = end_after(job, 40 * HOUR)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(50 * HOUR, put_halfway=(1, 2))
        job.put(3)

    with pytest.raises(DataLossError, match=rf"{SHARD} after \d+.*flink.state.dataloss=CONTINUE"):
        run_virtual(job.run(script, bounds))
    assert job.numbers == [0]


@PUBLISHERS
def test_a_run_whose_next_record_is_behind_its_end_counts_an_accepted_gap(publisher):
    job = Job(publisher, CONTINUE)
    bounds = end_after(job, 40 * HOUR)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(50 * HOUR, put_halfway=(1, 2))
        job.put(3)

    run_virtual(job.run(script, bounds))
    assert job.is_complete
    assert (job.numbers, job.metrics["retentionGaps"]) == ([0], 1)


@PUBLISHERS
def test_a_run_that_a_quiet_stream_keeps_until_its_end_is_complete(publisher):
    job = Job(publisher)
    bounds = end_after(job, 40 * HOUR)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(20 * HOUR, put_halfway=(1, 2))
        await asyncio.sleep(60)
        job.suspend(20 * HOUR)
        job.put(3)

    run_virtual(job.run(script, bounds))
    assert job.is_complete
    assert (job.numbers, job.metrics["retentionGaps"]) == ([0, 1, 2], 0)


@PUBLISHERS
def test_a_quiet_stream_is_no_gap_after_a_process_was_stopped(publisher):
    job = Job(publisher)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(50 * HOUR)
        await asyncio.sleep(30)
        job.put(1)

    run_virtual(job.run(script))

    assert job.numbers == [0, 1]
    assert (job.metrics["retentionGaps"], job.metrics["retentionNotChecked"]) == (0, 1)


@PUBLISHERS
@pytest.mark.parametrize("is_written", [False, True])
def test_a_restart_after_the_retention_fails_only_if_there_are_later_records(publisher, is_written):
    job = Job(publisher)

    async def twice() -> None:
        await job.run(lambda: asyncio.sleep(10))
        await asyncio.sleep(25 * HOUR)
        job.put(*([1] if is_written else []))
        await job.run(lambda: asyncio.sleep(10))

    if is_written:
        with pytest.raises(DataLossError, match=SHARD):
            run_virtual(twice())
        assert job.numbers == [0]
    else:
        run_virtual(twice())
        assert job.metrics["retentionNotChecked"] == 1


def test_a_gap_at_the_start_is_counted_once():
    job = Job("POLLING", CONTINUE)

    async def twice() -> None:
        await job.run(lambda: asyncio.sleep(10))
        await asyncio.sleep(25 * HOUR)
        job.put(1)
        await job.run(lambda: asyncio.sleep(10))

    run_virtual(twice())

    assert job.numbers == [0, 1]
    assert job.metrics["retentionGaps"] == 1


@PUBLISHERS
def test_a_stream_that_keeps_its_records_longer_has_no_gap(publisher):
    job = Job(publisher, retention_hours=168)

    async def script() -> None:
        await asyncio.sleep(10)
        job.suspend(50 * HOUR, put_halfway=(1, 2))
        job.put(3)

    run_virtual(job.run(script))

    assert job.numbers == [0, 1, 2, 3]
    assert (job.metrics["retentionGaps"], job.metrics["retentionNotChecked"]) == (0, 0)


@PUBLISHERS
@pytest.mark.parametrize("age", ["24h", "48h"])
def test_a_first_start_further_back_than_the_retention_reads_what_the_stream_has(publisher, age):
    job = Job(publisher, {"flink.stream.initpos": age})

    run_virtual(job.run(lambda: asyncio.sleep(10)))

    assert job.numbers == [0]
    assert job.metrics["retentionGaps"] == 0


def test_a_shard_that_was_never_read_counts_as_seen_when_the_job_first_started():
    gaps = RetentionGaps(None, SuspensionDetector(VirtualClock(), lambda gap: None), VirtualClock(), False)
    gaps.pin(1_000, ago_ms=500)
    unread = ShardEntry(shard("a"), ShardState(StartingPosition.at_timestamp(1_000)))

    gaps.start(unread, ())

    assert unread.progress.seen_ms == 1_500


TIMES = ("arrivalMs", "tipMs", "seenMs", "watermark", "continuation")


@PUBLISHERS
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_position_whose_time_nobody_knows_is_past_the_retention_if_its_record_is_gone(publisher, is_lost):
    """The KCL stores none."""
    job = Job(publisher)

    async def stop_then_import_and_start() -> None:
        await job.run(lambda: asyncio.sleep(10))
        (snapshot,) = job.snapshots
        state = snapshot["shards"][SHARD]
        snapshot["shards"][SHARD] = {name: value for name, value in state.items() if name not in TIMES}
        job.put(1)
        await asyncio.sleep((50 if is_lost else 20) * HOUR)
        job.put(2)
        await job.run(lambda: asyncio.sleep(10))

    if is_lost:
        with pytest.raises(DataLossError, match=rf"{SHARD} after \d+"):
            run_virtual(stop_then_import_and_start())
    else:
        run_virtual(stop_then_import_and_start())
    assert job.numbers == ([0] if is_lost else [0, 1, 2])


class TestWithoutDescribeStreamSummary:
    """A consumer ARN would be needed for EFO by name; polling needs no right but ListShards, GetShardIterator, GetRecords."""

    @staticmethod
    def job(retention_hours: int = 24, **properties: Any) -> Job:
        job = Job("POLLING", properties, retention_hours)
        job.account.faults.fail_next("DescribeStreamSummary", "AccessDeniedException", 1_000)
        return job

    def test_a_gap_is_found_by_the_oldest_record(self, caplog):
        job = self.job()

        async def script() -> None:
            await asyncio.sleep(10)
            job.suspend(50 * HOUR, put_halfway=(1, 2))
            job.put(3)

        with pytest.raises(DataLossError, match=SHARD):
            run_virtual(job.run(script))
        assert caplog.text.count("the retention of orders is not known") == 1

    def test_records_that_are_still_there_are_no_gap(self):
        job = self.job(168)

        async def script() -> None:
            await asyncio.sleep(10)
            job.suspend(50 * HOUR, put_halfway=(1, 2))
            job.put(3)

        run_virtual(job.run(script))
        assert job.numbers == [0, 1, 2, 3]
        assert (job.metrics["retentionGaps"], job.metrics["retentionNotChecked"]) == (0, 0)

    def test_a_quiet_shard_is_counted_as_not_checked(self):
        job = self.job()

        async def script() -> None:
            await asyncio.sleep(10)
            job.suspend(50 * HOUR)

        run_virtual(job.run(script))
        assert (job.metrics["retentionGaps"], job.metrics["retentionNotChecked"]) == (0, 1)


class TestChildren:
    """A child was opened when its parent was closed, which may be long before the end of the parent is read."""

    def setup_method(self):
        self.clock = VirtualClock()
        self.now_ms = self.clock.now_ms = lambda: self.time_ms  # type: ignore[assignment,method-assign]
        self.time_ms = 10**12
        suspension = SuspensionDetector(self.clock, lambda gap: None)
        self.gaps = RetentionGaps(None, suspension, self.clock, False)
        self.parent, self.child = entry("p"), ShardEntry(shard("c", "p"), ShardState(START))
        self.gaps.start(self.parent, [])

    def read(self, *arrivals_ms, behind_ms=0, ends=False):
        records = [UserRecord(b"1", str(at), at / 1000) for at in arrivals_ms]
        children = (self.child.shard,) if ends else ()
        last = SequenceNumber(str(arrivals_ms[-1])) if arrivals_ms else None
        self.gaps.on_read(self.parent, RecordBatch(self.parent.shard, records, behind_ms, last, children))

    def seen_ms(self):
        self.gaps.start(self.child, [self.parent])
        return self.child.progress.seen_ms

    def test_the_end_of_the_parent_may_be_read_long_after_its_last_record(self):
        self.read(10**12 - 72_000_000, ends=True)
        assert self.seen_ms() == 10**12 - 72_000_000

    def test_an_end_that_names_no_children_is_no_read_of_an_open_shard_either(self):
        self.read(10**12 - 72_000_000, behind_ms=1)
        self.read()
        assert self.seen_ms() == 10**12 - 72_000_000

    def test_a_parent_that_was_read_at_its_tip_and_read_again_was_open_then(self):
        self.read()
        self.time_ms += 5_000
        self.read(ends=True)
        assert self.seen_ms() == 10**12

    def test_a_gap_that_was_counted_says_nothing_of_the_child(self):
        self.read(10**12 - 72_000_000)
        self.time_ms += 5_000
        self.parent.progress.on_gap(self.time_ms)
        self.read(ends=True)
        assert self.seen_ms() == 10**12  # the read at the tip before

    def test_the_state_of_the_child_has_it_before_it_is_read(self):
        """Otherwise nobody knows it in a later run, when the parent is not listed any longer."""
        self.read(10**12 - 72_000_000, ends=True)
        self.seen_ms()
        assert self.child.snapshot_state.seen_ms == 10**12 - 72_000_000

    def test_a_parent_without_records_was_opened_after_its_own_parents_were_open(self):
        self.gaps.start(self.child, [ShardEntry(shard("p"), ShardState(START, ended=True, seen_ms=7))])
        assert self.child.progress.seen_ms == 7


@pytest.mark.parametrize(("hours", "told"), [(50, True), (20, False)])
def test_a_first_start_at_a_time_before_the_retention_is_told_once_and_is_no_loss(hours, told, caplog):
    at = EPOCH_MS + round((60 - hours) * HOUR * 1000)
    job = Job("POLLING", {"flink.stream.initpos": "AT_TIMESTAMP", "flink.stream.initpos.timestamp": f"{at / 1000}"})

    async def story() -> None:
        await asyncio.sleep(60 * HOUR)
        job.put(1)
        await job.run(lambda: asyncio.sleep(10))
        await job.run(lambda: asyncio.sleep(10))

    run_virtual(story())
    assert (job.numbers, job.metrics["retentionGaps"]) == ([1], 0)
    lines = [line for line in caplog.messages if line.startswith("stream orders keeps no records that arrived before ")]
    assert len(lines) == told


def test_a_start_does_not_wait_for_a_service_that_does_not_say_its_retention():
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 0)

    async def hang(stream):
        await asyncio.sleep(10_000)

    async def job():
        check = RetentionCheck(hang, hang, int, VirtualClock())
        starts = Starts(StartingPosition.at_timestamp(0))
        fetcher = make_fetcher(source, sink, starts=starts, retention=check)
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=10))

    run_virtual(job())
    assert sink.rows == [("a", 0)]
