"""A query by fan-out over Spark Connect with both listeners; prints the page of figures as JSON.

Arguments: a folder, the options as JSON, how many records to wait for.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import SparkSession

import recordpublisher as rp

FIGURE = 'recordpublisher_spark_records_total{query="connected"'
WAIT_SECONDS = 240


def main(folder: Path, options: dict[str, str], wanted: int) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    progress = rp.spark.ProgressListener("127.0.0.1:0")
    listeners = (progress, rp.spark.ConsumerDeregistration(options["stream"], options, query="connected"))
    for listener in listeners:
        spark.streams.addListener(listener)
    frame = spark.readStream.format("kinesis").options(**options).load()
    query = (
        frame.writeStream.format("parquet")
        .queryName("connected")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    deadline = time.monotonic() + WAIT_SECONDS
    page = ""
    while FIGURE not in page or total(page) < wanted:
        assert time.monotonic() < deadline, page
        time.sleep(0.2)
        with urlopen(progress.url) as response:
            page = response.read().decode()
    query.stop()
    while FIGURE in urlopen(progress.url).read().decode():
        assert time.monotonic() < deadline, "no event of the end"
        time.sleep(0.1)
    for listener in listeners:  # PySpark's thread for listeners keeps the process alive
        spark.streams.removeListener(listener)
    print(json.dumps(page), flush=True)


def total(page: str) -> float:
    return float(next(line for line in page.splitlines() if line.startswith(FIGURE)).rsplit(" ", 1)[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
