"""S5: records that passed the retention unread are named while the job runs and at its start; a quiet stream is no gap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over
from fakes.scripted_source import RecordingSink

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

    async def run(self, script: Callable[[], Awaitable[None]]) -> None:
        given = self.properties
        fetcher = fetcher_over(
            MemoryTransport(self.account), given, self.sink, VirtualClock(), restore=tuple(self.snapshots)
        )
        try:
            await fetcher.open()
            running = asyncio.create_task(fetcher.run())
            working = asyncio.ensure_future(script())
            await asyncio.wait([running, working], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
                await asyncio.sleep(30)  # what comes, comes now
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
