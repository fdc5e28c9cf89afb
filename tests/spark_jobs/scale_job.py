"""A measured Spark job: so many batches into the noop sink; prints as JSON how long each took, the CPU that each kind of process had
used when it ended, and how large the source's driver-side process became."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

KINDS = {"planner": b"python_streaming_source_runner", "tasks": b"pyspark.daemon", "jvm": b"SparkSubmit"}
"""Processes of a job by what their command line names."""


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    frame = session.readStream.format("kinesis").options(**job["options"]).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", job["folder"] + "/checkpoint")
    query = writer.start()
    cpu: dict[int, dict[str, float]] = {}
    while len(cpu) < job["batches"]:
        if query.exception() is not None:
            raise query.exception()
        last = (
            query._jsq.lastProgress()
        )  # the whole of it is a megabyte of JSON: only its number is asked for while it runs
        if last is not None and last.batchId() not in cpu:
            cpu[last.batchId()] = cpu_by_kind()
        time.sleep(0.05)
    batches = [measured(progress, cpu) for progress in query.recentProgress if progress["batchId"] in cpu]
    print(json.dumps({"batches": batches[: job["batches"]], "peakMb": peak_of_the_source()}), flush=True)
    query.stop()
    session.stop()


def measured(progress: dict[str, Any], cpu: dict[int, dict[str, float]]) -> dict[str, Any]:
    times = progress["durationMs"]
    names = ("latestOffset", "queryPlanning", "addBatch", "triggerExecution")
    taken = {name: times.get(name, 0) for name in names}
    return {"rows": progress["numInputRows"], **taken, "cpu": cpu[progress["batchId"]]}


def cpu_by_kind() -> dict[str, float]:
    return {kind: round(sum(map(cpu_seconds, processes(mark))), 2) for kind, mark in KINDS.items()}


def processes(mark: bytes) -> Iterator[Path]:
    """This job's processes of a kind, as folders of /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "cmdline").read_bytes() and is_ours(process):
                yield process
        except (FileNotFoundError, ProcessLookupError):
            continue


def is_ours(process: Path) -> bool:
    """Whether a process descends from this one; others may run Spark beside it."""
    while process.name not in ("0", "1"):
        if process.name == str(os.getpid()):
            return True
        process = process.parent / (process / "stat").read_text().rpartition(")")[2].split()[1]
    return False


def cpu_seconds(process: Path) -> float:
    """User and system time of a process and of its children that have ended: Spark ends workers that are idle for a minute."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_of_the_source() -> float:
    """Peak resident memory of the process that plans, MB."""
    for process in processes(KINDS["planner"]):
        peak = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    raise AssertionError("no source process")


if __name__ == "__main__":
    main()
