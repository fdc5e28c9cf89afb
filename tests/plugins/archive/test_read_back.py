"""An archive that a real job wrote is read back by the publisher ARCHIVE, and continues live at the exact next record."""

import asyncio
import json

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.archive.factory import ArchiveFactory

from ..sinks.tables.lake_tables import place_of, uri_of

FIRST = "shardId-000000000000"


class Values(rp.Sink):
    """The rows, as they came."""

    def __init__(self):
        self.rows = []

    async def write(self, batch):
        self.rows += [
            (
                batch.shard_id,
                record.sequence_number,
                record.sub_sequence_number,
                record.partition_key,
                record.data,
                record.arrival_millis,
            )
            for record in batch
        ]

    @property
    def numbers(self):
        return [json.loads(row[4])["n"] for row in self.rows]


def archiving(served, folder, kind, **more):
    return {
        **served.endpoint.properties(),
        "flink.sink": kind,
        **place_of(folder, kind),
        "flink.sink.archive": True,
        "flink.state.checkpoint.interval": 100,
        "flink.job.name": "archive",
        "flink.shard.discovery.intervalmillis": 200,
        "flink.stream.initpos": "TRIM_HORIZON",
        **more,
    }


def reading(served, folder, live, kind="", **more):
    return {
        **served.endpoint.properties(),
        "flink.stream.recordpublisher": "ARCHIVE",
        **uri_of(folder, kind),
        "flink.archive.live": live,
        "flink.stream.efo.consumername": "c",
        "flink.shard.discovery.intervalmillis": 200,
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.job.name": "reads",
        **more,
    }


async def archived(properties, until):
    """Run the archiving job until the condition holds."""
    async with rp.DataFetcher("orders", properties) as fetcher:
        running = asyncio.create_task(fetcher.run())
        async with asyncio.timeout(60):
            while not until():  # noqa: ASYNC110 - the folder is what is looked at
                await asyncio.sleep(0.05)
        fetcher.stop()
        await running


async def read_until(properties, sink, count):
    async with rp.DataFetcher("orders", properties, sink=sink) as fetcher:
        running = asyncio.create_task(fetcher.run())
        async with asyncio.timeout(60):
            while len(sink.rows) < count and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
        fetcher.stop()
        await running
        return fetcher.snapshot()


def has_rows(folder, count):
    def check():
        import pyarrow.parquet as pq

        files = [file for file in folder.rglob("*.*") if ".recordpublisher" not in file.parts]
        ranges = [file.name for file in files if file.match("_recordpublisher/ranges/*/*/*of*")]
        if ranges:  # Files of a table are not complete before their ranges.
            return sum(int(name.rpartition(".")[2]) for name in ranges) >= count
        lines = sum(len(file.read_bytes().splitlines()) for file in files if file.suffix == ".jsonl")
        files = [] if (folder / "_delta_log").exists() or (folder / "warehouse").exists() else files
        return lines + sum(pq.read_metadata(file).num_rows for file in files if file.suffix == ".parquet") >= count

    return check


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "delta", "iceberg"])
@pytest.mark.parametrize("live", ["POLLING", "EFO", "NONE"])
async def test_the_past_then_live_each_record_once_over_a_split(tmp_path, kind, live):
    folder = tmp_path / "out"
    folder.mkdir()
    with serve_in_thread(streams={"orders": 1}) as served:
        stream = served.stream("orders")
        written = 0
        for round_number in range(3):
            stream.put(*({"n": 10 * round_number + number} for number in range(10)))
            written += 10
            await archived(archiving(served, folder, kind), has_rows(folder, written))
            if round_number == 0:
                stream.split(FIRST)
        stream.put(*({"n": 30 + number} for number in range(10)))
        sink = Values()
        expected = 30 if live == "NONE" else 40
        await read_until(reading(served, folder, live, kind), sink, expected)
        direct = Values()
        await read_until({**reading(served, folder, live, kind), "flink.stream.recordpublisher": "POLLING"}, direct, 40)

    assert sorted(sink.numbers) == list(range(expected))
    assert sorted(sink.rows) == sorted(row for row in direct.rows if row[:2] in {each[:2] for each in sink.rows})
    for shard in {row[0] for row in sink.rows}:
        numbers = [int(row[1]) for row in sink.rows if row[0] == shard]
        assert numbers == sorted(numbers)
    assert {row[0] for row in sink.rows[:10]} == {FIRST}


@pytest.mark.parametrize(
    ("kind", "writes", "reads"),
    [
        *(("jsonl", writes, reads) for writes in ("ALONE", "GROUP") for reads in ("ALONE", "GROUP")),
        ("delta", "GROUP", "GROUP"),
        ("iceberg", "GROUP", "ALONE"),
    ],
)
async def test_groups_write_and_read_archives(tmp_path, kind, writes, reads):
    """A restart of the reader continues where it stopped, with another publisher too."""
    folder = tmp_path / "out"
    folder.mkdir()

    def state(name, workers):
        return {
            "flink.state.uri": str(tmp_path / name),
            "flink.job.workers": workers,
            "flink.lease.duration": 2000,
            "flink.state.checkpoint.interval": 100,
        }

    with serve_in_thread(streams={"orders": 1}) as served:
        stream = served.stream("orders")
        stream.put(*({"n": number} for number in range(10)))
        await archived(archiving(served, folder, kind, **state("a", writes)), has_rows(folder, 10))
        stream.split(FIRST)
        stream.put(*({"n": 10 + number} for number in range(10)))
        await archived(archiving(served, folder, kind, **state("a", writes)), has_rows(folder, 20))
        stream.put(*({"n": 20 + number} for number in range(10)))
        sink, more = Values(), state("b", reads)
        await read_until(reading(served, folder, "POLLING", kind, **more), sink, 30)
        assert sorted(sink.numbers) == list(range(30))
        stream.put(*({"n": 30 + number} for number in range(10)))
        rest = Values()
        await read_until(
            {**reading(served, folder, "POLLING", kind, **more), "flink.stream.recordpublisher": "POLLING"}, rest, 10
        )
        assert sorted(rest.numbers) == list(range(30, 40))
        stream.put(*({"n": 40 + number} for number in range(10)))
        last = Values()
        await read_until(reading(served, folder, "POLLING", kind, **more), last, 10)
        assert sorted(last.numbers) == list(range(40, 50))


async def test_the_positions_of_a_group_say_when_it_saw_the_tip(tmp_path):
    folder = tmp_path / "out"
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put({"n": 1})
        group = {
            "flink.state.uri": str(tmp_path / "a"),
            "flink.job.workers": "GROUP",
            "flink.lease.duration": 2000,
        }
        async with rp.DataFetcher("orders", archiving(served, folder, "jsonl", **group)) as fetcher:
            running = asyncio.create_task(fetcher.run())
            async with asyncio.timeout(60):
                while not await tip_of(served, folder):  # noqa: ASYNC110 - the folder is what is looked at
                    await asyncio.sleep(0.2)
            fetcher.stop()
            await running


async def tip_of(served, folder):
    if not has_rows(folder, 1)():
        return None
    factory = ArchiveFactory(rp.Properties(reading(served, folder, "NONE")))
    committed = dict(await factory._archive.catalogue.committed())
    await factory.close()
    return committed[f"orders/{FIRST}"].tip_ms
