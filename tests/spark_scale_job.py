"""A Spark job that is measured: so many batches into the noop sink; says as JSON how long each took and how large the source's driver-side
process became."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    frame = session.readStream.format("kinesis").options(**job["options"]).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", job["folder"] + "/checkpoint")
    query = writer.start()
    while len(query.recentProgress) < job["batches"]:
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.1)
    batches = [measured(progress) for progress in query.recentProgress]
    print(json.dumps({"batches": batches, "peakMb": peak_of_the_source()}), flush=True)
    query.stop()
    session.stop()


def measured(progress: dict[str, Any]) -> dict[str, Any]:
    times = progress["durationMs"]
    names = ("latestOffset", "queryPlanning", "addBatch", "triggerExecution")
    return {"rows": progress["numInputRows"], **{name: times.get(name, 0) for name in names}}


def peak_of_the_source() -> float:
    """Peak resident memory of the process that plans, MB."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"python_streaming_source_runner" in (process / "cmdline").read_bytes():
                peak = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
                return int(peak.split()[1]) / 1024
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError("no source process")


if __name__ == "__main__":
    main()
