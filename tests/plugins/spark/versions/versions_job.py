"""A job that also older versions of PySpark run: it reads a stream, writes rows and those of a query into another, starts a query."""

from __future__ import annotations

import json
import sys

import pyspark
from pyspark.sql import SparkSession

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "1",
    "spark.python.authenticate.socketTimeout": "120s",
}


def main() -> None:
    read, written, folder = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    rows = session.read.format("kinesis").options(**read).load().select("data", "partitionKey")
    rows.write.format("kinesis").mode("append").options(**written).save()

    numbers = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    texts = numbers.selectExpr("CAST(value AS STRING) AS data")
    query = texts.writeStream.format("kinesis").options(**written).option("checkpointLocation", f"{folder}/written")
    query.trigger(availableNow=True).start().awaitTermination()

    refused = ""
    frame = session.readStream.format("kinesis").options(**read, metadataLocation=f"{folder}/claims").load()
    try:
        query = frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/read").start()
        query.awaitTermination()
    except Exception as error:
        refused = str(error)
    print(json.dumps({"version": pyspark.__version__, "rows": rows.count(), "refused": refused}))
    session.stop()


if __name__ == "__main__":
    main()
