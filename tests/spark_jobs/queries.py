"""Helpers of the tests on a real Spark: its home, streams of numbered records, queries over them, and their output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import recordpublisher as rp
from recordpublisher.local import stream as resharding

WAIT_SECONDS = 300
"""Seconds: far more than anything takes, also on a machine that has other things to do. Waits end when what they wait for is there."""


HOME = Path(sys.prefix, "spark-home")
"""One for all tests, since the classes that `make spark-classes` stores are used where the jars have the same paths."""
ARCHIVES = "python"
"""Spark puts its archives of PySpark first on the path of each Python process, which has to compile them: 0.6 s of CPU."""


def spark_home() -> Path:
    """A home of Spark without the archives, so that processes import the installed PySpark. Made if it is missing."""
    import pyspark

    if not HOME.exists():
        made = Path(tempfile.mkdtemp(dir=HOME.parent))
        link_entries(Path(pyspark.__file__).parent, made)
        with suppress(OSError):  # another process was first
            made.rename(HOME)
    return HOME


def link_entries(package: Path, home: Path) -> None:
    """Links in `home` to what an installed PySpark has, but for the archives."""
    for entry in package.iterdir():
        if entry.name != ARCHIVES:
            (home / entry.name).symlink_to(entry)


@contextmanager
def at_home() -> Iterator[None]:
    """A Spark that is started in the block has this home; programs that tests start later have their own."""
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(spark_home())
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
        if before is not None:
            os.environ["SPARK_HOME"] = before


class Kinesis:
    """A stream at the embedded endpoint; its records are numbered JSON documents with an event time."""

    def __init__(self, served: Any, name: str, shards: int) -> None:
        self.served = served
        self.name = name
        self.count = 0
        served.endpoint.account.streams().pop(name, None)  # a test that runs once more begins again
        served.call(served.endpoint.account.create_stream, name, shards)

    @property
    def stream(self) -> Any:
        return self.served.endpoint.stream(self.name)

    def put(self, count: int, event_time: Callable[[int], int] = lambda n: n, shard: int | None = None) -> None:
        """Append `count` numbered records, spread over the shards or all into one shard (by its index in hash-key order)."""

        def append() -> None:
            for n in range(self.count, self.count + count):
                hash_key = None if shard is None else self.stream.open_shards[shard].hash_range.start
                self.stream.put(b'{"n": %d, "at": %d}' % (n, event_time(n)), f"key-{n}", hash_key)

        self.served.call(append)
        self.count += count

    def split(self, index: int) -> None:
        """Split a shard, given by its index in hash-key order."""

        def cut() -> None:
            shard = self.stream.open_shards[index]
            resharding.split(self.stream, shard, (shard.hash_range.start + shard.hash_range.end) // 2)

        self.served.call(cut)

    def merge(self, index: int) -> None:
        """Merge a shard, given by its index in hash-key order, with the next one."""

        def join() -> None:
            first, second = self.stream.open_shards[index : index + 2]
            resharding.merge(self.stream, first, second)

        self.served.call(join)

    def records(self) -> list[Any]:
        """Every user record of the stream, as this library reads it; parents before children."""
        properties = {**self.served.endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}

        async def read() -> list[Any]:
            sink = rp.MemorySink()
            async with rp.DataFetcher([self.name], properties, sink=sink) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True, max_time=60)
            return sink.records

        return asyncio.run(read())

    def options(self, folder: Path, **more: object) -> dict[str, str]:
        """The reader's options."""
        given = {
            "stream": self.name,
            "metadataLocation": str(folder / "metadata"),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.watermark.timestamp.field": "at",
            "maxTasks": 2,
            **self.served.endpoint.properties(),
            **more,
        }
        if "metadataRoot" in more:
            del given["metadataLocation"]
        return {key: str(value) for key, value in given.items()}

    def load(self, spark: Any, folder: Path, columns: str | None = None, **more: object) -> Any:
        """The stream as a DataFrame, with the number of each record as `n`; with `columns`, those alone, and the stream by its name."""
        from pyspark.sql import functions as f

        reader = spark.readStream.format("kinesis").options(**self.options(folder, **more))
        frame = reader.load() if columns is None else reader.schema(columns).load(self.name)
        number = f.get_json_object(f.col("data").cast("string"), "$.n").cast("long").alias("n")
        return frame.select("*", number)


def to_parquet(frame: Any, folder: Path, name: str | None = None, **trigger: Any) -> Any:
    """A query that writes Parquet, started."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer if name is None else writer.queryName(name)
    return (writer.trigger(**trigger) if trigger else writer).start()


def numbers(spark: Any, folder: Path) -> list[int]:
    """The records' numbers as Parquet has them, sorted."""
    return sorted(row["n"] for row in spark.read.parquet(str(folder / "out")).select("n").collect())


def wait_for_rows(query: Any, count: int) -> None:
    """Wait until the query's batches have read this many rows; raises the query's error."""
    deadline = time.monotonic() + WAIT_SECONDS
    while rows_so_far(query) < count:
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < deadline, f"{rows_so_far(query)} of {count} rows after {WAIT_SECONDS} s"
        time.sleep(0.2)


def rows_so_far(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def wait_until_quiet(query: Any) -> None:
    """Wait until the last batch has no rows."""
    deadline = time.monotonic() + WAIT_SECONDS
    while query.lastProgress["numInputRows"]:
        assert time.monotonic() < deadline, f"rows come and come: {query.lastProgress}"
        time.sleep(0.2)


def wait_until(query: Any, is_there: Callable[[], bool]) -> None:
    """Wait for a condition; raises the query's error."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_there():
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.1)


def outage_of(query: Any) -> dict[str, Any] | None:
    """The outage that the last progress shows."""
    progress = query.lastProgress
    return None if progress is None else json.loads(progress["sources"][0]["latestOffset"] or "{}").get("outage")


def end_offset(query: Any) -> dict[str, Any]:
    return json.loads(query.lastProgress["sources"][0]["endOffset"])


def write_stream(
    frame: Any, target: Kinesis, folder: Path, form: str = "kinesis", *, trigger: dict[str, Any], **more: object
) -> Any:
    """A query that writes into a stream, started."""
    options = {"stream": target.name, **target.served.endpoint.properties(), **more}
    writer = frame.writeStream.format(form).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.options(**{key: str(value) for key, value in options.items()}).trigger(**trigger).start()


def write_rows(frame: Any, target: Kinesis, mode: str = "append", **more: object) -> None:
    """Write a table's rows into a stream."""
    options = {"stream": target.name, **target.served.endpoint.properties(), **more}
    given = {key: str(value) for key, value in options.items() if value is not None}
    frame.write.format("kinesis").mode(mode).options(**given).save()


def dropped_repeats(records: list[Any], id_field: str = "rowId") -> list[dict[str, Any]]:
    """The rows that a consumer keeps that drops repeated ids."""
    rows: dict[str, dict[str, Any]] = {}
    for record in records:
        row = json.loads(record.data)
        rows.setdefault(row[id_field], row)
    return list(rows.values())
