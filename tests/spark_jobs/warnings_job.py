"""Loads, queries, reads and writes with an unknown option. Between marks, its stderr has what Spark's processes write there.

warnings_job.py FOLDER OPTIONS WRITTEN: prints what `ProgressListener` logs in this process, as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import recordpublisher as rp

WAIT_SECONDS = 120
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "120s",
}


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def mark(text: str) -> None:
    print(f"=== {text}", file=sys.stderr, flush=True)


def run(frame: Any, folder: Path) -> None:
    writer = frame.writeStream.format("parquet").queryName("q").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(folder: Path, options: dict[str, str], written: dict[str, str]) -> None:
    builder = SparkSession.builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    lines = Lines()
    logging.getLogger("recordpublisher.spark").addHandler(lines)
    spark.streams.addListener(rp.spark.ProgressListener("127.0.0.1:0"))

    mark("load")
    frame = spark.readStream.format("kinesis").options(**options).load()
    mark("start")
    run(frame, folder / "one")
    mark("start with a schema")
    run(spark.readStream.format("kinesis").options(**options).schema("data BINARY").load(), folder / "two")
    mark("read")
    table = spark.read.format("kinesis").options(**options).load()
    table.count()
    table.count()
    mark("write")
    rows = spark.readStream.schema("data BINARY, partitionKey STRING").option("maxFilesPerTrigger", 1)
    writer = rows.parquet(str(folder / "one" / "out")).writeStream.format("kinesis").options(**written)
    writer = writer.option("checkpointLocation", str(folder / "written")).trigger(availableNow=True)
    writer.start().awaitTermination()
    mark("end")
    deadline = time.monotonic() + WAIT_SECONDS
    while sum("query q" in text for text in lines.texts) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    print(json.dumps(lines.texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
