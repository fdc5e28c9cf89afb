"""Orders per minute and key, from Kinesis into Parquet, every batch written once. See run-a-job.md.

python spark_job.py job.properties out          # until it is stopped
python spark_job.py job.properties out --now    # reads what the streams have now, then ends
"""

import sys
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import recordpublisher as rp


def main(properties: str, out: Path, now: bool) -> None:
    options = {key: str(value) for key, value in rp.Properties.from_file(properties).items()}
    spark = SparkSession.builder.appName("orders-per-minute").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", options.get("maxTasks", "4"))  # state stores: 200 by default
    records = spark.readStream.format("kinesis").options(**options).load()
    query = (
        per_minute(records)
        .writeStream.foreachBatch(lambda batch, number: write_once(batch, out / f"batch={number}"))
        .option("checkpointLocation", str(out / "_checkpoint"))
        .trigger(**({"availableNow": True} if now else {"processingTime": "5 seconds"}))
        .start()
    )
    query.awaitTermination()


def per_minute(records: DataFrame) -> DataFrame:
    """Counts per minute and key; a minute is written when event times are thirty seconds past its end."""
    minutes = records.withWatermark("eventTime", "30 seconds").groupBy(
        f.window("eventTime", "1 minute"), "partitionKey"
    )
    return minutes.count().select(f.col("window.start").alias("minute"), "partitionKey", "count")


def write_once(batch: DataFrame, folder: Path) -> None:
    """Write a batch once. A batch that Spark runs again has the same rows and the same number: the first finished write counts.

    On an object store let the table format do it: Delta's `txnAppId` and `txnVersion=number`, or a MERGE by key.
    """
    aside = folder.parent / f"_{uuid.uuid4().hex}"
    batch.write.parquet(str(aside))
    if not folder.exists():
        aside.rename(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "--now" in sys.argv)
