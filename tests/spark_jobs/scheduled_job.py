"""A scheduled run, as cron starts it: one AvailableNow run into Parquet. Prints as JSON the rows, and CPU seconds by kind of process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.plain_format import PlainSource
from spark_jobs.scale_job import cpu_seconds, processes

DRIVER, JVM, ENDED = "driver", "JVM", "planner and other processes that have ended"
MARKS = {
    "lookup_data_sources": "names of formats",
    "create_data_source": "load()",
    "plan_data_source_read": "plan",
    "pyspark.worker": "tasks",
    "SparkSubmit": JVM,
    "scheduled_job": DRIVER,
}
"""What a command line names, and what that process does; the first one counts."""


def main() -> None:
    job = json.loads(sys.argv[1])
    began = time.monotonic()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    for key, value in job["conf"].items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    if job["format"] == "plain":
        session.dataSource.register(PlainSource)
    rows = session.readStream.format(job["format"]).options(**job["options"]).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", job["folder"] + "/checkpoint")
    query = writer.trigger(availableNow=True).start(job["folder"] + "/out")
    query.awaitTermination()
    count = sum(progress["numInputRows"] for progress in query.recentProgress)
    seconds = time.monotonic() - began
    print(json.dumps({"rows": count, "seconds": seconds, "cpu": by_process()}), flush=True)
    session.stop()


def by_process() -> dict[str, float]:
    """CPU of this process and all that it has started. Spark's daemons start workers, which end with them."""
    found: Counter[str] = Counter()
    for process in processes(b""):
        kind = kind_of(process)
        found[kind] += cpu_seconds(process)
        if kind == JVM:
            found[ENDED] += cpu_of_ended(process)
            found[JVM] -= cpu_of_ended(process)
    return {kind: round(seconds, 2) for kind, seconds in found.items()}


def cpu_of_ended(process: Path) -> float:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def kind_of(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode()
    return next((kind for mark, kind in MARKS.items() if mark in words), ENDED)


if __name__ == "__main__":
    main()
