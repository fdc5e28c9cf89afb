"""A job that also older versions of PySpark run: it reads a stream, writes rows into another, and runs queries of both kinds."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import recordpublisher as rp

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "1",
    "spark.python.authenticate.socketTimeout": "120s",
}
SCHEMA = {"flink.deserializer.schema": "n BIGINT, price DECIMAL(5, 2), tags ARRAY<STRING>, place STRUCT<at: TIMESTAMP>"}
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


def main() -> None:
    read, written, folder = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    rows = session.read.format("kinesis").options(**read).load().select("data", "partitionKey")
    rows.write.format("kinesis").mode("append").options(**written).save()
    decoded = session.read.format("kinesis").options(**read, **SCHEMA).load().collect()

    numbers = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    texts = numbers.selectExpr("CAST(value AS STRING) AS data")
    query = texts.writeStream.format("kinesis").options(**written).option("checkpointLocation", f"{folder}/written")
    query.trigger(availableNow=True).start().awaitTermination()

    batches: list[list[int]] = []
    frame = session.readStream.format("kinesis").options(**read, metadataLocation=f"{folder}/claims").load()
    writer = frame.writeStream.option("checkpointLocation", f"{folder}/read").trigger(availableNow=True)
    writer = writer.foreachBatch(
        lambda batch, _: batches.append([json.loads(row.data)["n"] for row in batch.collect()])
    )
    runs = rp.spark.run_to_tips(writer.start)
    rows.write.format("kinesis").mode("append").options(**read).save()
    session.conf.set(WRAPPER, "true")
    refused = error_of(writer)
    session.conf.set(WRAPPER, "false")
    runs += rp.spark.run_to_tips(writer.start)
    told = {"version": pyspark.__version__, "rows": rows.count(), "batches": batches, "refused": refused, "runs": runs}
    told["decoded"] = [row.n for row in decoded]
    print(json.dumps(told))
    session.stop()


def error_of(writer: Any) -> str:
    try:
        writer.start().awaitTermination()
    except Exception as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
