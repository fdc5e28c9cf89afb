"""The whole path of hostile records: bodies of GetRecords through a whole job to each sink."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

import recordpublisher as rp
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.plugins.spark.arrow_rows import ArrowRows
from recordpublisher.publishers.aggregation.deaggregation import Deaggregator
from recordpublisher.publishers.kinesis.codec import decode_read, to_read_response
from recordpublisher.publishers.positions import StartingPosition

from .payloads import HostileRecord, hostile_record
from fakes.writable_stream import FakeKinesis

RECORDS_PER_READ = 200
HASH_KEY = re.compile(r"0|[1-9]\d{0,38}")
POLICIES = ("SKIP", "DEAD_LETTER")
Drawn = dict[str, HostileRecord]
"""The records of one response by sequence number."""


class HostileFactory(rp.RecordPublisherFactory):
    """Two shards of `count` records each, all drawn by `seed`; the second takes half of the hash keys."""

    keyless = True
    seed: ClassVar[int] = 0
    count: ClassVar[int] = 0
    shards: ClassVar[dict[str, rp.Shard]] = {}
    known: ClassVar[int] = 0
    read: ClassVar[int] = 0

    def __init__(self, properties: rp.Properties) -> None:
        pass

    async def create(self, shard, starting_position, metrics):
        return HostilePublisher(shard, metrics)

    async def discover(self, stream):
        half = rp.HashRange(0, 2**127)
        return [rp.Shard(stream, "whole", closed=True), rp.Shard(stream, "half", hash_range=half, closed=True)]


class HostilePublisher(rp.RecordPublisher):
    def __init__(self, shard: rp.Shard, metrics: Any) -> None:
        self._shard = shard
        self._deaggregator = Deaggregator(shard, metrics)

    async def run(self, consumer):
        for drawn in _responses(f"{HostileFactory.seed}/{self._shard.shard_id}", HostileFactory.count):
            response = to_read_response(decode_read(_body(drawn)), self._shard)
            position = rp.SequenceNumber(response.records[-1].sequence_number)
            user_records: Counter[str] = Counter()
            async for batch in self._deaggregator.batches(response, position, StartingPosition.trim_horizon()):
                user_records.update(batch.sequence_numbers)
                assert await consumer(batch) == batch.read_position
            self._check(drawn, user_records)
            HostileFactory.read += user_records.total()
            await asyncio.sleep(0)
        return rp.RunResult.COMPLETE

    def _check(self, drawn: Drawn, user_records: Counter[str]) -> None:
        """No record is lost before the job reads it; the shard that takes half of the hash keys drops foreign sub-records."""
        if self._shard.hash_range == rp.HashRange():
            for number, record in drawn.items():
                assert record.user_records in (None, user_records[number]), record.data[:200]


def _responses(seed: str, count: int) -> Iterator[Drawn]:
    draw = random.Random(seed)
    for first in range(0, count, RECORDS_PER_READ):
        yield {str(number): hostile_record(draw) for number in range(first, min(first + RECORDS_PER_READ, count))}


def _body(drawn: Drawn) -> bytes:
    entries = []
    for number, record in drawn.items():
        entry = {"Data": base64.b64encode(record.data).decode(), "SequenceNumber": number}
        entry["ApproximateArrivalTimestamp"] = 1_700_000_000.25
        if record.partition_key is not None:
            entry["PartitionKey"] = record.partition_key
        entries.append(entry)
    return json.dumps({"Records": entries, "MillisBehindLatest": 0, "NextShardIterator": "next"}).encode()


class HostileStreams:
    """The plugin that brings them."""

    @rp.hookimpl
    def recordpublisher_register_publishers(self, registry):
        registry.add("HOSTILE", HostileFactory)


@dataclass(frozen=True)
class Outcome:
    """What became of the records: read from the stream, written by the sink, skipped, dead letters."""

    read: int
    written: int
    skipped: int
    dead_letters: int
    last_positions: dict[str, str]


async def run_through(kind: str, policy: str, seed: int, count: int, folder: Path) -> Outcome:
    """Run a job over 2 * `count` hostile records. `kind` is one of `SINKS`. Needs `HostileStreams` in the registry."""
    HostileFactory.seed, HostileFactory.count, HostileFactory.read = seed, count, 0
    properties = rp.Properties(_properties(folder, policy) | ({} if seed % 3 else {"flink.deserializer": "json"}))
    sink, rows_of = SINKS[kind](folder, properties)
    async with rp.DataFetcher(["s"], properties, sink=sink) as fetcher:
        await fetcher.run()
        shards, metrics = fetcher.snapshot()["shards"], fetcher.metrics()["shards"].values()
    return Outcome(
        HostileFactory.read,
        rows_of(),
        sum(shard["skippedRecords"] for shard in metrics),
        sum(len(path.read_bytes().splitlines()) for path in (folder / "letters").rglob("*.jsonl")),
        {key: shard["position"] for key, shard in shards.items()},
    )


def _properties(folder: Path, policy: str) -> dict[str, Any]:
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(folder / "letters")}
    return {
        "flink.stream.recordpublisher": "HOSTILE",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.deserializer.error": policy,
        "flink.watermark.timestamp.field": "ts",
        "flink.job.name": "job",
        "flink.sink.jsonl.path": str(folder / "jsonl"),
        "flink.sink.parquet.path": str(folder / "parquet"),
        "flink.sink.sql.uri": f"sqlite:///{folder / 'rows.db'}",
        "flink.sink.sql.table": "rows",
        "RateLimit": 1_000_000,
    } | (letters if policy == "DEAD_LETTER" else {})


def _memory(folder, properties):
    sink = rp.MemorySink()
    return sink, lambda: sum(bool(record.approximate_arrival_timestamp) for record in sink.records)


def _jsonl(folder, properties):
    def rows():
        lines = [line for path in (folder / "jsonl").rglob("*.jsonl") for line in path.read_bytes().splitlines()]
        return len(lines)

    return rp.JsonlSink(properties), rows


def _parquet(folder, properties):
    def rows():
        return sum(len(pq.read_table(path).to_pylist()) for path in (folder / "parquet").rglob("*.parquet"))

    return rp.ParquetSink(properties), rows


def _sql(folder, properties):
    def rows():
        with closing(sqlite3.connect(folder / "rows.db")) as database:
            return database.execute("select count(*) from rows").fetchone()[0]

    return rp.SqlSink(properties), rows


def _sql_columns(folder, properties):
    """A table with a column for fields of the values."""
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        database.execute("create table rows (ts timestamp, n numeric(20, 2), value integer, data blob)")
        database.commit()
    return _sql(folder, properties)


def _kinesis(folder, properties):
    stream = FakeKinesis(2)
    stream.latency = 0
    stream.refuse = _refuse
    return KinesisSink("out", properties, port=stream), lambda: sum(
        len(shard.taken) for shard in stream.shards.values()
    )


def _refuse(entry):
    """The service would refuse the whole call."""
    assert 1 <= len(entry.partition_key) <= 256
    assert len(entry.data) + len(entry.partition_key.encode()) <= 2**20
    assert entry.explicit_hash_key is None or HASH_KEY.fullmatch(entry.explicit_hash_key)


def _spark(folder, properties):
    sink = ArrowRows()
    return sink, lambda: len(sink.table().to_pylist())


SINKS = {
    "memory": _memory,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "sql": _sql,
    "sql-columns": _sql_columns,
    "kinesis": _kinesis,
    "spark": _spark,
}
