"""Snapshots of a job: of a running job, from stored positions, joined, and read over HTTP."""

import asyncio
import signal
import sys

import msgspec
import pytest
from msgspec.structs import replace

from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerMetrics
from recordpublisher.plugins.dashboard.server import DashboardServer
from recordpublisher.plugins.dashboard.snapshots import (
    HttpSnapshots,
    JoinedSnapshots,
    LiveSnapshots,
    alignment_sentence,
    job_snapshot,
)
from recordpublisher.plugins.lag.job_snapshot import CommitSnapshot, JobSnapshot, ShardSnapshot, WorkerSnapshot
from recordpublisher.plugins.metrics.export import FetchersOfProcess
from recordpublisher.publishers.errors import RecordPublisherError, StateError

from fakes.monitoring.measured_fetcher import METRICS, MeasuredFetcher
from fakes.shard_entries import StoppedClock
from processes.command_line import process_environment


def metrics(**values):
    """Of a worker with one shard, `s/a`, that has these metrics."""
    return {"worker": METRICS["worker"], "shards": {"s/a": {**METRICS["shards"]["s/a"], **values}}}


class CountingSource(FetchersOfProcess):
    """Counts how often metrics were asked for."""

    asked = 0

    async def metrics(self):
        self.asked += 1
        return await super().metrics()


@pytest.fixture
def clock():
    return StoppedClock(100.0)


async def test_a_shard_has_what_its_metrics_say(clock):
    given = metrics(watermark=7, silentMs=60_000, held=False, lagMs=40, timeToRetentionLossMs=9, stage="READING")
    snapshot = await LiveSnapshots(FetchersOfProcess([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    (shard,) = snapshot.shards
    assert (shard.stream, shard.shard, shard.process, shard.stage) == ("s", "a", 0, "READING")
    assert (shard.watermark, shard.lag_ms, shard.loss_ms) == (7, 40, 9)
    assert (shard.is_idle, shard.is_held, shard.has_alarm, shard.alarm) == (True, False, False, None)
    assert snapshot.time_ms == 100_000


async def test_the_name_of_the_job_and_what_it_left_out_are_shown(clock):
    given = metrics(skippedRecords=2, deadLetters=1, unacknowledged=3, alarm=True)
    given["worker"] = {**given["worker"], "skippedRecords": 5, "deadLetters": 4}
    snapshot = await LiveSnapshots(
        FetchersOfProcess([MeasuredFetcher(0, given)]), clock, 60_000, "orders-to-lake"
    ).snapshot()

    assert snapshot.job == "orders-to-lake"
    (worker,) = snapshot.workers
    assert (worker.counts["skipped"], worker.counts["dead letters"]) == (5, 4)
    shard = snapshot.shards[0]
    assert (shard.counts["skipped"], shard.counts["dead letters"], shard.in_flight) == (2, 1, 3)
    assert snapshot.shards[0].has_alarm is True


@pytest.mark.parametrize(("metric", "parents"), [("p", ["p"]), ("p q", ["p", "q"]), (None, [])])
async def test_a_shard_has_the_parents_of_its_metric(clock, metric, parents):
    snapshot = await LiveSnapshots(
        FetchersOfProcess([MeasuredFetcher(0, metrics(parents=metric))]), clock, 60_000
    ).snapshot()

    assert snapshot.shards[0].parents == parents


async def test_the_lag_before_the_first_read_is_not_known(clock):
    snapshot = await LiveSnapshots(
        FetchersOfProcess([MeasuredFetcher(0, metrics(lagMs=None))]), clock, 60_000
    ).snapshot()

    assert snapshot.shards[0].lag_ms is None


async def test_rates_come_from_two_snapshots(clock):
    fetcher = MeasuredFetcher(0, metrics(records=10, bytes=100))
    snapshots = LiveSnapshots(FetchersOfProcess([fetcher]), clock, 60_000)
    first = await snapshots.snapshot()
    clock.seconds += 2
    fetcher.given = metrics(records=16, bytes=400)
    second = await snapshots.snapshot()

    assert first.shards[0].records_per_second is None
    assert (second.shards[0].records_per_second, second.shards[0].bytes_per_second) == (3.0, 150.0)


async def test_many_readers_cost_one_computation_a_second(clock):
    source = CountingSource([MeasuredFetcher()])
    snapshots = LiveSnapshots(source, clock, 60_000)
    assert source.asked == 0, "nothing is computed before somebody asks"

    found = await asyncio.gather(*(snapshots.snapshot() for _ in range(5)))
    assert source.asked == 1
    assert all(each is found[0] for each in found)
    clock.seconds += 1
    await snapshots.snapshot()
    assert source.asked == 2


async def test_workers_are_shown_with_what_they_lack(clock):
    ready, waiting = MeasuredFetcher(0), MeasuredFetcher(1, reasons=["no checkpoint is stored"])
    snapshot = await LiveSnapshots(FetchersOfProcess([ready, waiting]), clock, 60_000).snapshot()

    assert {each.process: each.not_ready for each in snapshot.workers} == {0: [], 1: ["no checkpoint is stored"]}
    assert [shard.process for shard in snapshot.shards] == [0, 0, 1, 1]


async def test_a_worker_of_a_group_has_its_name_and_each_worker_the_age_of_its_checkpoint(clock):
    given = metrics()
    given["worker"] = {**given["worker"], "worker": "0f3a", "checkpointAgeMs": 900}
    snapshot = await LiveSnapshots(FetchersOfProcess([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    assert [(each.worker, each.checkpoint_age_ms) for each in snapshot.workers] == [("0f3a", 900)]
    assert [each.worker for each in snapshot.shards] == ["0f3a"]


async def test_a_job_whose_sink_commits_has_its_last_commit(clock):
    given = metrics()
    commit = {"committedFiles": 3, "committedBytes": 900, "committedAgeMs": 42, "uncommittedRecords": 7}
    given["worker"] = {**given["worker"], **commit}
    snapshot = await LiveSnapshots(FetchersOfProcess([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    assert [each.commit for each in snapshot.workers] == [CommitSnapshot(3, 900, 42, 7)]


async def test_a_job_without_a_worker_that_responds_cannot_be_read(clock):
    with pytest.raises(RecordPublisherError, match="no worker of the job responds"):
        await LiveSnapshots(FetchersOfProcess([]), clock, 60_000).snapshot()


async def test_a_snapshot_is_sent_as_json(clock):
    snapshot = await LiveSnapshots(FetchersOfProcess([MeasuredFetcher()]), clock, 60_000).snapshot()

    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=JobSnapshot) == snapshot


@pytest.mark.parametrize(
    ("silent_ms", "stage", "is_idle"), [(59_999, "READING", False), (60_000, "READING", True), (60_000, "ENDED", False)]
)
async def test_a_shard_that_is_read_and_was_silent_for_the_interval_is_idle_whatever_watermarks_wait_for(
    clock, silent_ms, stage, is_idle
):
    given = metrics(silentMs=silent_ms, stage=stage, idle=False)
    snapshot = await LiveSnapshots(FetchersOfProcess([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    assert snapshot.shards[0].is_idle is is_idle


def shard(**values):
    return {**METRICS["shards"]["s/a"], "stage": "READING", "watermark": 1_000, **values}


def worker(number=0, held=0, blocking=None, **shards):
    own = {**METRICS["worker"], "openShards": len(shards), "heldShards": held}
    own |= {"blockingShard": blocking and f"s/{blocking}"}
    return WorkerMetrics(number, own, {f"s/{name}": values for name, values in shards.items()})


def test_without_a_held_shard_it_holds_nothing():
    assert alignment_sentence([worker(a=shard())]) == "Alignment holds no shard back."


REASONS = [
    ({"millisBehindLatest": 2_500}, "which is 2.5 s behind its newest record"),
    ({"millisBehindLatest": -1}, "which has not been read yet"),
    ({"millisBehindLatest": 0}, "which has no new records and is not idle yet"),
    ({"queuedRecords": 3}, "whose records are read and wait to be written"),
    ({"alarm": True, "queuedRecords": 3}, "which has unread records and wrote none for the alarm interval"),
    ({"stage": "ENDED"}, "which has ended and whose children are not read yet"),
]


@pytest.mark.parametrize(("values", "reason"), REASONS)
def test_it_names_the_shard_and_the_reason(values, reason):
    job = [worker(0, held=1, blocking="a", a=shard(**values), b=shard(held=True))]

    assert alignment_sentence(job) == f"1 of 2 shards is held back: it waits for s/a of worker 0, {reason}."


def test_the_lowest_watermark_counts():
    first = worker(0, held=1, blocking="a", a=shard(watermark=5))
    second = worker(1, blocking="b", b=shard(watermark=3))
    third = worker(2, blocking="c", c=shard(watermark=None))

    assert "s/b of worker 1" in alignment_sentence([first, second])
    assert "s/c of worker 2" in alignment_sentence([first, second, third])


def test_a_shard_of_another_process_is_not_known():
    assert alignment_sentence([worker(0, held=1, a=shard())]) == (
        "1 of 1 shards is held back: it waits for a shard of another process."
    )


LAG = ShardSnapshot(stream="orders", shard="a", process=1, watermark=5_000, unread=True, lag_ms=4_200, is_idle=False)


def snapshot_of(*shards, **more):
    return job_snapshot([*shards], 100_000, **more)


def test_each_reader_has_its_newest_checkpoint_and_an_unknown_health():
    lags = [
        replace(LAG, checkpoint_age_ms=4_000),
        replace(LAG, shard="b", checkpoint_age_ms=3_000),
        replace(LAG, shard="c", process=0),
        replace(LAG, shard="d", process=None),
        replace(LAG, shard="e", process=None, worker="w-1", checkpoint_age_ms=9),
    ]
    assert (snapshot_of(*lags)).workers == [
        WorkerSnapshot(0),
        WorkerSnapshot(1, checkpoint_age_ms=3_000),
        WorkerSnapshot(worker="w-1", checkpoint_age_ms=9),
    ]


def test_the_global_watermark_is_the_lowest_of_shards_that_are_not_idle():
    idle = replace(LAG, shard="idle", watermark=1, is_idle=True)
    snapshot = snapshot_of(LAG, idle, replace(LAG, shard="b", watermark=2_000))

    assert snapshot.global_watermark == 2_000
    assert snapshot.alignment == (
        "The lowest watermark is that of b, 3.0 s below the highest; stored positions do not show which shards are held."
    )


def test_without_positions_neither_watermark_nor_alignment_is_known():
    snapshot = snapshot_of(replace(LAG, watermark=None))

    assert (snapshot.global_watermark, snapshot.alignment) == (None, None)


def test_where_watermarks_wait_for_idle_shards_these_count_too():  # W2
    idle = replace(LAG, shard="idle", watermark=1, is_idle=True)

    assert snapshot_of(LAG, idle, waits_for_idle=True).global_watermark == 1


class Source:
    def __init__(self, snapshot):
        self.given = snapshot

    async def snapshot(self):
        return self.given


async def joined(*snapshots):
    return await JoinedSnapshots([Source(each) for each in snapshots], StoppedClock(100.0), 5).snapshot()


def of_stream(name, *workers):
    return JobSnapshot(time_ms=1, shards=[ShardSnapshot(stream=name, shard="a")], workers=[*workers] or None)


async def test_a_worker_of_several_streams_is_shown_once_with_its_newest_checkpoint():
    found = await joined(
        of_stream("orders", WorkerSnapshot(1), WorkerSnapshot(0, checkpoint_age_ms=900)),
        of_stream("returns", WorkerSnapshot(0, checkpoint_age_ms=700), WorkerSnapshot(1, checkpoint_age_ms=50)),
    )

    assert [(each.process, each.checkpoint_age_ms) for each in found.workers] == [(0, 700), (1, 50)]
    assert [each.stream for each in found.shards] == ["orders", "returns"]


async def test_without_positions_no_worker_is_known():
    assert (await joined(of_stream("orders"))).workers is None


async def test_the_job_has_its_name():
    source = Source(of_stream("orders"))
    assert (
        await JoinedSnapshots([source], StoppedClock(100.0), 5, "orders-to-lake").snapshot()
    ).job == "orders-to-lake"


SHARDS = [ShardSnapshot(stream=name, shard="a", is_held=True) for name in ("orders", "refunds")]


class SourceHttpSnapshots:
    """Answers with a job of two streams, or fails."""

    error = None

    async def snapshot(self):
        if self.error is not None:
            raise self.error
        return JobSnapshot(time_ms=7, shards=SHARDS, alignment="They wait.")


@pytest.fixture
def source():
    return SourceHttpSnapshots()


@pytest.fixture
async def url(source):
    server = DashboardServer(source)
    yield await server.open(0)
    await server.close()


@pytest.mark.parametrize("path", ["", "/", "/snapshot.json"])
@pytest.mark.parametrize("stream", ["orders", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"])
async def test_the_shards_of_the_stream_are_read(url, path, stream):
    snapshot = await HttpSnapshots(url + path, [stream]).snapshot()
    assert await HttpSnapshots(url.removeprefix("http://") + path, [stream]).snapshot() == snapshot

    assert snapshot == JobSnapshot(time_ms=7, shards=SHARDS[:1], alignment="They wait.")


@pytest.mark.slow
async def test_the_command_shows_them(url):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recordpublisher", "lag", "orders", "--live", url, "--watch"),
        stdout=asyncio.subprocess.PIPE,
        env=process_environment(),
    )
    shown = await process.stdout.readuntil(b"LOST IN\n")
    row = await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    await process.communicate()

    assert process.returncode == 0
    assert b"They wait." in shown
    assert row.split() == [b"a", b"-", b"-", b"-", b"-", b"-", b"yes", b"-"]


@pytest.mark.slow
async def test_without_watch_the_command_shows_them_once(url):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recordpublisher", "lag", "orders", "--live", url),
        stdout=asyncio.subprocess.PIPE,
        env=process_environment(),
    )
    shown, _ = await process.communicate()

    assert process.returncode == 0
    assert shown.count(b"They wait.") == 1


async def test_another_stream_is_an_error_that_names_those_of_the_job(url):
    with pytest.raises(RecordPublisherError, match="the job does not read 'ordres'; it reads orders, refunds"):
        await HttpSnapshots(url, ["ordres"]).snapshot()


async def test_the_error_of_the_job_is_passed_on(url, source):
    source.error = StateError("no worker of the job responds")

    with pytest.raises(RecordPublisherError, match=r"^no worker of the job responds$"):
        await HttpSnapshots(url, ["orders"]).snapshot()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://127.0.0.1:port"])
async def test_a_wrong_url_is_an_error_that_names_it(url):
    with pytest.raises(RecordPublisherError, match=f"no running job serves {url}/snapshot.json: "):
        await HttpSnapshots(url, ["orders"]).snapshot()


async def test_a_wrong_url_is_named_without_its_password():
    with pytest.raises(RecordPublisherError, match="no running job serves http://me:") as raised:
        await HttpSnapshots("http://me:hunter2@127.0.0.1:port", ["orders"]).snapshot()
    assert "hunter2" not in str(raised.value)
