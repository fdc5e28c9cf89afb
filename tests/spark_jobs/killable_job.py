"""A Spark job in a process of its own: rows of a stream into files or a stream until killed, or with `finish` until all was read."""

from __future__ import annotations

import json
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import recordpublisher as rp

from spark_jobs.killable_format import KillableSource, pause_while_armed

ACTIONS = 3
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.python.authenticate.socketTimeout": "120s",
}


def main() -> None:
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    builder = SparkSession.builder.master(job["master"]).config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.daemon.module", "recordpublisher.plugins.spark.worker_daemon")
    for key, value in {**CONF, **job["conf"]}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(KillableSource)
    frame = session.readStream.format(job["form"]).options(**job["options"]).load()
    if job["sink"] == "kinesis":
        writer = frame.select("data", "partitionKey").writeStream.format("killable").options(**job["target"])
        run(writer.option("checkpointLocation", str(folder / "checkpoint")), job["finish"])
        return
    rows = frame.select("shardId", "sequenceNumber", f.get_json_object(f.col("data").cast("string"), "$.n").alias("n"))
    if job["form"] == "kinesis":  # that source has no pauses
        rows = rows.mapInArrow(pausing(folder), rows.schema)
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if job["sink"] == "parquet":
        writer = writer.format("parquet").option("path", str(folder / "out"))
    else:
        writer = writer.foreachBatch(lambda batch, number: act(batch, number, folder))
    run(writer, job["finish"])


def run(writer: Any, finish: bool) -> None:
    if finish:
        rp.spark.run_to_tips(writer.trigger(availableNow=True).start)
        return
    query = writer.start()
    print("started", flush=True)
    watch(query)


def pausing(folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows as they are, with the pauses "writing", for kills, and "slow" after a task's claim and before the rows reach the sink."""

    def paused(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            pause_while_armed(folder, "slow")
            pause_while_armed(folder, "writing")
            yield batch

    return paused


def act(batch: Any, number: int, folder: Path) -> None:
    """Three actions, each of which reads the batch anew, into folders of which the first to be finished counts.

    An overwrite in place would not do: a driver that was stopped in the middle of one adds its files to those of its replacement.
    """
    for action in range(ACTIONS):
        output = folder / f"out-{action}"
        aside, done = output / f".{uuid.uuid4().hex}", output / f"batch={number}"
        batch.write.parquet(str(aside))
        try:
            aside.rename(done)
        except OSError:  # another attempt was first: it must have written the same rows
            assert rows_in(aside) == rows_in(done), f"batch {number} was read twice with different rows"
            (folder / f"again-{number}-{action}").touch()
            shutil.rmtree(aside)
    pause_while_armed(folder, "acted")


def rows_in(folder: Path) -> list[tuple[str, str]]:
    table = pq.read_table(folder, columns=["shardId", "sequenceNumber"], partitioning=None)
    return sorted(zip(table["shardId"].to_pylist(), table["sequenceNumber"].to_pylist(), strict=True))


def watch(query: Any) -> None:
    """Print each batch on stdout; raise the query's error."""
    seen = -1
    while query.isActive:
        for progress in query.recentProgress:
            if progress["batchId"] > seen and "addBatch" in progress["durationMs"]:  # a batch, and not an idle time
                seen = progress["batchId"]
                print("batch", seen, progress["numInputRows"], flush=True)
        time.sleep(0.05)
    if query.exception() is not None:
        raise query.exception()


if __name__ == "__main__":
    main()
