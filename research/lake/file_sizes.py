"""What a day of 1 MB/s in 50 partitions leaves, by the interval of commits: `python research/lake/file_sizes.py` prints the page's rows.

The sinks get the bytes of some whole intervals (3 of 10 s and 60 s, 1 of 300 s and 900 s), with all of their records but without a stream
and without waiting: sizes do not depend on how fast records arrive. The count is scaled to 86,400 s. Records are JSON of 500 bytes, of
which 300 are random hexadecimal digits, with a time, a number and a country, from one shard (1 MB/s is the limit of a shard) and one
process. More shards add up: `parquet` has a file for each shard, tables have one for each process, and in a group for each shard.
"""

import asyncio
import random
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.consumer.typed_values import Json
from recordpublisher.fetcher.sink import CommitNumber
from recordpublisher.plugins.deserializers.row_types import parse_columns
from recordpublisher.plugins.sinks.tables.delta import DeltaSink
from recordpublisher.plugins.sinks.tables.iceberg import IcebergSink
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

DAY_SECONDS, BYTES_A_SECOND, RECORD_BYTES, PARTITIONS = 86_400, 1_000_000, 500, 50
CASES = [(10, 3, 64), (60, 3, 64), (300, 1, 64), (300, 1, 512), (900, 1, 64)]
"""The seconds between commits, how many intervals are written, and `flink.sink.buffer.bytes` in MiB."""
SCHEMA = "id BIGINT, at TIMESTAMP, price DOUBLE, note STRING, address STRUCT<country: STRING>"
PATTERN = {"flink.sink.partitions": "country={address.country}"}
BATCH_RECORDS = 2_000


def batches(seconds: int, first: int, chance: random.Random):
    """Batches with the records of so many seconds."""
    count = seconds * BYTES_A_SECOND // RECORD_BYTES
    for begin in range(first, first + count, BATCH_RECORDS):
        numbers = range(begin, min(begin + BATCH_RECORDS, first + count))
        records = [
            UserRecord(payload(number, chance), str(number), 1.7e9 + number / 2_000, "key") for number in numbers
        ]
        size = sum(len(record.data) for record in records)
        last = SequenceNumber(str(numbers[-1]))
        yield RecordBatch(
            Shard("orders", "shardId-000000000000"), records, 0, last, raw_count=len(records), raw_bytes=size
        )


def payload(number: int, chance: random.Random) -> bytes:
    at = 1_700_000_000 + number // 2_000
    order = {
        "id": number,
        "at": f"2023-11-{14 + at % 10:02}T12:00:{at % 60:02}.{number % 1000:03}Z",
        "price": chance.randrange(10_000) / 100,
        "note": f"{chance.getrandbits(1_200):0300x}",
        "address": {"country": f"country-{chance.randrange(PARTITIONS):02}"},
    }
    text = msgspec.json.encode(order)
    return text[:-1] + b" " * (RECORD_BYTES - len(text)) + b"}"


async def sizes(sink_name: str, seconds: int, intervals: int, buffer: int) -> list[int]:
    """Return the sizes of all files (bytes)."""
    with tempfile.TemporaryDirectory() as folder:
        of = parse_columns(SCHEMA)
        decode = Json(of)
        is_wanted = asyncio.Event()
        context = rp.SinkContext(value_type=of, request_checkpoint=is_wanted.set)
        given = {**PATTERN, "flink.sink.buffer.bytes": f"{buffer}mb"}
        if sink_name == "delta":
            sink = DeltaSink(rp.Properties({**given, "flink.sink.delta.uri": f"{folder}/rows"}))
        elif sink_name == "iceberg":
            catalog = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog_in(folder).items()}
            state = {"flink.sink.iceberg.table": "lake.rows", "flink.state.uri": f"file://{folder}/state"}
            sink = IcebergSink(rp.Properties({**given, **catalog, **state}))
        else:
            sink = rp.ParquetSink(rp.Properties({**given, "flink.sink.parquet.path": f"{folder}/rows"}))
        await sink.open(context)
        await sink.begin("job.0.1")
        number, chance = 0, random.Random(7)

        async def commit() -> None:
            nonlocal number
            number += 1
            is_wanted.clear()
            if (staged := await sink.stage(CommitNumber("job/0", number))) is not None:
                await sink.publish([staged])

        for interval in range(intervals):
            for batch in batches(seconds, interval * seconds * BYTES_A_SECOND // RECORD_BYTES, chance):
                await sink.write(batch.with_columns(values=decode.values(batch)))
                if is_wanted.is_set():
                    await commit()
            await commit()
        await sink.close()
        return files_of(sink_name, folder)


def catalog_in(folder: str) -> dict[str, str]:
    """Return the properties of a catalogue in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def files_of(sink_name: str, folder: str) -> list[int]:
    """Return the sizes of the files that readers see (bytes)."""
    if sink_name == "delta":
        return [
            int(size) for size in DeltaTable(f"{folder}/rows").get_add_actions(flatten=True)["size_bytes"].to_pylist()
        ]
    if sink_name == "iceberg":
        scan = load_catalog("default", **catalog_in(folder)).load_table("lake.rows").scan()
        return [task.file.file_size_in_bytes for task in scan.plan_files()]
    return [path.stat().st_size for path in Path(f"{folder}/rows").rglob("*.parquet")]


def page_row(sink_name: str, seconds: int, intervals: int, buffer: int, found: list[int]) -> str:
    files = len(found) * DAY_SECONDS // (seconds * intervals)
    median, total = statistics.median(found), sum(found) * DAY_SECONDS / (seconds * intervals)
    size = f"{median / 1e6:.2f} MB | {max(found) / 1e6:.2f} MB | {total / 1e9:.0f} GB"
    return f"| {sink_name} | {seconds} s | {buffer} MiB | {files:,} | {size} |"


if __name__ == "__main__":
    for name in sys.argv[1:] or ("parquet", "delta", "iceberg"):
        for case in CASES:
            print(page_row(name, *case, asyncio.run(sizes(name, *case))), flush=True)
