"""A measured backfill: an action over a whole stream, as often as asked, by `spark.read` or by a loop of boto3 in `mapPartitions`.

Prints as JSON the rows, seconds and CPU seconds of each action.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.scale_job import KINDS, cpu_seconds, processes

SCHEMA = (
    "shardId STRING, partitionKey STRING, sequenceNumber STRING, approximateArrivalTimestamp TIMESTAMP, data BINARY"
)
FORMAT, LOOP = "format", "loop"


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(f"local[{job['slots']}]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    make = {FORMAT: of_format, LOOP: of_loop}[job["kind"]]
    measured = [measure(lambda: make(session, job)) for _ in range(job["actions"])]
    print(json.dumps(measured), flush=True)
    session.stop()


def measure(make: Callable[[], DataFrame]) -> dict[str, float]:
    began, cpu = time.monotonic(), cpu_so_far()
    rows = make().selectExpr("sum(if(length(data) > 0, 1, 0)) AS n").collect()[0].n
    return {"rows": rows, "seconds": time.monotonic() - began, "cpu": cpu_so_far() - cpu}


def cpu_so_far() -> float:
    """CPU of the job's JVM and Python workers."""
    return sum(cpu_seconds(process) for mark in (KINDS["jvm"], KINDS["tasks"]) for process in processes(mark))


def of_format(session: SparkSession, job: dict[str, Any]) -> DataFrame:
    return session.read.format("kinesis").options(**job["options"]).load()


def of_loop(session: SparkSession, job: dict[str, Any]) -> DataFrame:
    """What is written in an afternoon: a task for each shard, and pauses as the documentation of Kinesis advises."""
    access = job["access"]
    shards = client(access).list_shards(StreamName=job["stream"])["Shards"]
    ids = session.sparkContext.parallelize([shard["ShardId"] for shard in shards], len(shards))
    stream = job["stream"]
    return session.createDataFrame(ids.mapPartitions(lambda part: read_shards(access, stream, part)), SCHEMA)


def client(access: dict[str, str]) -> Any:
    import boto3

    return boto3.client("kinesis", **access)


def read_shards(access: dict[str, str], stream: str, shards: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    kinesis = client(access)
    for shard in shards:
        given = {"StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(**given)["ShardIterator"]
        while iterator:
            try:
                answer = kinesis.get_records(ShardIterator=iterator, Limit=10_000)
            except kinesis.exceptions.ProvisionedThroughputExceededException:
                time.sleep(1)
                continue
            for record in answer["Records"]:
                arrival = record["ApproximateArrivalTimestamp"]
                yield shard, record["PartitionKey"], record["SequenceNumber"], arrival, record["Data"]
            if answer["MillisBehindLatest"] == 0:
                break
            iterator = answer.get("NextShardIterator")
            time.sleep(0.2)


if __name__ == "__main__":
    main()
