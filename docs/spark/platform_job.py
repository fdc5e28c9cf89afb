"""What comes into a stream, as Parquet: platform_job.py --stream orders --place s3://bucket/orders [--option KEY=VALUE ...]"""

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--stream", required=True)
parser.add_argument("--place", required=True)
parser.add_argument("--option", action="append", default=[])
given, _ = parser.parse_known_args()  # Glue adds arguments of its own

spark = SparkSession.builder.appName(f"{given.stream}-to-parquet").getOrCreate()
options = {"stream": given.stream, "metadataRoot": f"{given.place}/claims"}
options |= dict(pair.split("=", 1) for pair in given.option)
rows = spark.readStream.format("recordpublisher").options(**options).load()
writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{given.place}/checkpoint")
writer.trigger(availableNow=True).start(f"{given.place}/rows").awaitTermination()
