"""archive_of plays records, or a folder, against a job, on virtual time."""

import asyncio
import shutil
import time

import pytest

import recordpublisher as rp
from recordpublisher.testing import EPOCH_MS, VirtualClock, archive_of, record, run_virtual

HOUR_MS = 3_600_000


class Slow(rp.Sink):
    """Takes a minute for each batch."""

    def __init__(self):
        self.rows, self.watermarks = [], []

    async def write(self, batch):
        await asyncio.sleep(60)
        self.rows += [(each.shard_id, each.data, each.arrival_millis) for each in batch]


def played(properties, sink, **more):
    async def job():
        clock = VirtualClock(EPOCH_MS)
        async with rp.DataFetcher("orders", {**properties, **more}, sink=sink, clock=clock) as fetcher:
            await fetcher.run()
        return clock.now_ms()

    return run_virtual(job())


def test_a_job_reads_payloads_values_and_records_and_its_minutes_take_no_time():
    sink, began = Slow(), time.monotonic()
    late = record(b"\xff", sequence_number=9, arrival=EPOCH_MS + HOUR_MS)
    with archive_of(["a", {"n": 1}, late]) as properties:
        ended_ms = played(properties, sink)

    assert [data for _, data, _ in sink.rows] == [b"a", b'{"n":1}', b"\xff"]
    assert [arrival for *_, arrival in sink.rows] == [EPOCH_MS, EPOCH_MS, EPOCH_MS + HOUR_MS]
    assert ended_ms >= EPOCH_MS + 60_000
    assert time.monotonic() - began < 30


def test_parents_are_read_before_their_children():
    parent, child = rp.Shard("orders", "b"), rp.Shard("orders", "a", parents=("b",))
    records = [
        record("2", shard_id="a", sequence_number=2),
        record("1", shard_id="b", sequence_number=1),
    ]
    sink = Slow()
    with archive_of(records, shards=[child, parent]) as properties:
        played(properties, sink)

    assert [(shard, data) for shard, data, _ in sink.rows] == [("b", b"1"), ("a", b"2")]


def test_parts_of_an_aggregate_and_keys_come_back():
    given = [record(f"{part}", sequence_number=5, sub_sequence_number=part, key=f"k{part}") for part in range(3)]
    sink = rp.MemorySink()
    with archive_of(given) as properties:
        played(properties, sink)

    assert [(each.sub_sequence_number, each.partition_key) for each in sink.records] == [
        (0, "k0"),
        (1, "k1"),
        (2, "k2"),
    ]


def test_a_job_that_failed_resumes_where_its_state_says(tmp_path):
    class Failing(rp.MemorySink):
        async def write(self, batch):
            await super().write(batch)
            if any(each.data == b"15" for each in batch):
                raise OSError("the power failed")

    more = {
        "flink.state.uri": str(tmp_path / "state"),
        "flink.state.checkpoint.interval": "10ms",
        "flink.job.name": "j",
    }
    parent = [record(str(number), shard_id="a", sequence_number=number) for number in range(1, 11)]
    child = [record(str(number), shard_id="b", sequence_number=number) for number in range(11, 21)]
    shards = [rp.Shard("orders", "a"), rp.Shard("orders", "b", parents=("a",))]
    first, second = Failing(), rp.MemorySink()
    with archive_of([*parent, *child], shards=shards) as properties:
        with pytest.raises(Exception, match="the power failed"):
            played(properties, first, **more)
        played(properties, second, **more)

    assert [each.data for each in first.records][:10] == [each.data for each in parent]
    assert [each.data for each in second.records][-10:] == [each.data for each in child]


def test_a_folder_from_production_is_read_where_it_was_copied_to(tmp_path):
    with archive_of(["a", "b"]) as properties:
        shutil.copytree(properties["flink.archive.uri"], tmp_path / "copy")
    sink = rp.MemorySink()
    with archive_of(tmp_path / "copy") as copied:
        played(copied, sink)

    assert [each.data for each in sink.records] == [b"a", b"b"]
    assert (tmp_path / "copy").exists()


async def test_a_test_with_a_loop_of_its_own_may_make_an_archive():
    sink = rp.MemorySink()
    with archive_of(["a"]) as properties:
        async with rp.DataFetcher("orders", properties, sink=sink) as fetcher:
            await fetcher.run()

    assert [each.data for each in sink.records] == [b"a"]


def test_records_that_are_out_of_order_are_refused():
    with (
        pytest.raises(rp.StateError, match="orders/shardId-000000000000 are not in order: 1 comes after 2"),
        archive_of([record("b", sequence_number=2), record("a", sequence_number=1)]),
    ):
        pass


@pytest.mark.parametrize("source", ["records", "an empty folder"])
def test_a_stream_that_the_archive_does_not_have_is_an_error_at_once(tmp_path, source):
    async def job(properties):
        async with rp.DataFetcher("payments", properties, sink=rp.MemorySink()) as fetcher:
            await fetcher.run()

    archive = archive_of([record("1")] if source == "records" else tmp_path)
    missing = pytest.raises(rp.StreamNotFoundError, match="stream 'payments' does not exist in the archive")
    with archive as properties, missing:
        run_virtual(job(properties))
