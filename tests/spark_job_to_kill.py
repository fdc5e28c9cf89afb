"""A Spark job in a process of its own: Parquet from a stream until killed, or, told `--finish`, until everything there was read."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main() -> None:
    options, folder, finish = json.loads(sys.argv[1]), Path(sys.argv[2]), "--finish" in sys.argv
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    frame = session.readStream.format("kinesis").options(**options).load()
    rows = frame.select("shardId", "sequenceNumber", f.get_json_object(f.col("data").cast("string"), "$.n").alias("n"))
    checkpoint = str(folder / "checkpoint")
    writer = (
        rows.writeStream.format("parquet").option("path", str(folder / "out")).option("checkpointLocation", checkpoint)
    )
    query = (writer.trigger(availableNow=True) if finish else writer).start()
    print("started", flush=True)
    watch(query)


def watch(query: Any) -> None:
    """Say each batch on stdout; raise what the query died of."""
    seen = -1
    while query.isActive:
        for progress in query.recentProgress:
            if progress["batchId"] > seen:
                seen = progress["batchId"]
                print("batch", seen, progress["numInputRows"], flush=True)
        time.sleep(0.05)
    if query.exception() is not None:
        raise query.exception()


if __name__ == "__main__":
    main()
