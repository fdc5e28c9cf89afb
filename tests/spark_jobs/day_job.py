"""A Spark job that runs for some seconds with a fast clock, and prints every few seconds what it holds. Argument: the job as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from servers.atomic_stores import ACCESS
from spark_jobs.fast_clock_format import FastClockSource
from spark_jobs.scale_job import KINDS, processes

PYTHON = ("planner", "tasks")
MEASURE_SECONDS = 5.0


def main() -> None:
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.python.authenticate.socketTimeout", "120s").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(FastClockSource)
    frame = session.readStream.format("fast-clock").options(**job["options"]).load()
    rows = frame.select(f.get_json_object(f.col("data").cast("string"), "$.n").cast("long").alias("n"))
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    print(json.dumps({"started": True}), flush=True)
    until = time.monotonic() + job["seconds"]
    while time.monotonic() < until:
        if query.exception() is not None:
            raise query.exception()
        print(json.dumps(held(job["options"])), flush=True)
        time.sleep(MEASURE_SECONDS)
    query.stop()
    session.stop()


def held(options: dict[str, str]) -> dict[str, float]:
    """Claims; memory (MB), files and sockets of the Python processes."""
    found = [process for kind in PYTHON for process in processes(KINDS[kind])]
    memory, handles, sockets = 0.0, 0, 0
    for process in found:
        memory += resident_mb(process)
        for link in links(process):
            handles += 1
            sockets += link.startswith("socket:")
    stored = claims(options["metadataLocation"], options.get("flink.state.endpoint"))
    return {"claims": stored, "mb": round(memory), "handles": handles, "sockets": sockets, "processes": len(found)}


def claims(location: str, endpoint: str | None) -> int:
    """How many files, objects or items there are."""
    scheme, _, rest = location.partition("://")
    place = rest.partition("/")[0]
    if not rest:
        return sum(1 for path in Path(location).rglob("*") if path.is_file())
    client = boto3.client(scheme, endpoint_url=endpoint, **ACCESS)
    try:
        if scheme == "s3":
            return int(client.list_objects_v2(Bucket=place)["KeyCount"])
        return int(client.scan(TableName=place, Select="COUNT")["Count"])
    except client.exceptions.ClientError:  # no table yet
        return 0
    finally:
        client.close()


def resident_mb(process: Path) -> float:
    """What no other process shares, so that forked workers are not counted twice."""
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def links(process: Path) -> Iterator[str]:
    try:
        for entry in (process / "fd").iterdir():
            yield os.readlink(entry)
    except (FileNotFoundError, ProcessLookupError):
        return


if __name__ == "__main__":
    main()
