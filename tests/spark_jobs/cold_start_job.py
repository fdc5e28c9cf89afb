"""A Spark job whose tasks note how much CPU their Python workers take: the first, warm ones, and one after a task that failed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.empty_format import FOLDER, EmptySource


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[1,4]").config("spark.ui.enabled", "false")
    for key, value in {"spark.driver.host": "127.0.0.1", **job["conf"]}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(EmptySource)
    if job["source"] == "kinesis":
        session.dataSource.register(_measured())
    frame = session.readStream.format("empty" if job["source"] == "empty" else "measured").options(**job["options"])
    query = frame.load().writeStream.format("noop").start()
    notes = Path(job["options"][FOLDER]) / "notes"
    while not notes.exists() or len(notes.read_text().splitlines()) < job["tasks"]:
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.1)
    query.stop()
    session.stop()


def _measured() -> Any:
    from spark_jobs.measured_format import MeasuredSource

    return MeasuredSource


if __name__ == "__main__":
    main()
