"""A Spark job of any of the connectors, in the Python of its Spark: prints a line of JSON for each batch until told to stop or killed.

It must run with PySpark 3 and 4 and nothing else. Its argument is JSON: `format`, `options`, `conf`, `slots`, `folder`, and the
`action`: `rows` (into Parquet files), `noop`, `print` (a line `- DATA` for each row), or `count` (read those files).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    job = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{job['slots']}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
    for key, value in job["conf"].items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    folder = job["folder"]
    if job["action"] == "count":
        frame = session.read.parquet(folder + "/rows")
        numbers = [int(row[0]) for row in frame.selectExpr("substring(cast(data as string), 1, 8)").collect()]
        print(json.dumps({"numbers": numbers}), flush=True)
        return
    frame = session.readStream.format(job["format"]).options(**job["options"]).load()
    writer = frame.writeStream.option("checkpointLocation", folder + "/checkpoint")
    if job["action"] == "print":
        writer.foreachBatch(print_rows).start().awaitTermination()
    in_files = job["action"] == "rows"
    report(
        writer.format("parquet").option("path", folder + "/rows").start() if in_files else writer.format("noop").start()
    )


def print_rows(frame: Any, _: int) -> None:
    """The rows of a batch in the order of their sequence numbers, which is that of each key also when its shard has split."""
    rows = sorted(frame.select("sequenceNumber", "data").collect(), key=lambda row: int(row[0]))
    for _, data in rows:
        print("-", bytes(data).decode())  # not every connector has a column of the shard
    sys.stdout.flush()


def report(query: Any) -> None:
    """A line for each batch: its rows and time, and the CPU so far."""
    told = -1
    while query.exception() is None:
        for progress in progress_after(query, told):
            told = progress["batchId"]
            line = {
                "batch": told,
                "rows": progress["numInputRows"],
                "ms": progress["durationMs"]["triggerExecution"],
            }
            cpu, java = cpu_seconds()
            print(json.dumps({**line, "cpu": cpu, "java": java, "at": time.monotonic()}), flush=True)
        time.sleep(0.05)
    raise query.exception()


def progress_after(query: Any, batch: int) -> list[dict[str, Any]]:
    """The progress of later batches. `query.recentProgress` converts the last hundred each time, which takes seconds."""
    found = []
    for progress in reversed(query._jsq.recentProgress()):
        if progress.batchId() <= batch:
            break
        found.append(json.loads(progress.json()))
    return found[::-1]


def cpu_seconds() -> tuple[float, float]:
    """CPU of this process and all that descend from it, those that have ended too where they were waited for; and of it the JVM's own."""
    parents, ticks, own = {}, {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (process / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = rest.split()
        parents[int(process.name)] = int(fields[1])
        ticks[int(process.name)] = sum(map(int, fields[11:15]))
        if name.endswith("(java"):  # what it started and has waited for is not its own
            own[int(process.name)] = sum(map(int, fields[11:13]))
    total = java = 0
    for process, used in ticks.items():
        ancestor = process
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            total, java = total + used, java + own.get(process, 0)
    second = os.sysconf("SC_CLK_TCK")
    return total / second, java / second


if __name__ == "__main__":
    main()
