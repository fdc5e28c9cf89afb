"""A Spark job in a process of its own that measures how long its records take: it puts ten a second and gets them in foreachBatch."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import boto3
from pyspark.sql import SparkSession

import recordpublisher as rp

WARM_UP_SECONDS = 15.0


def main() -> None:
    job = json.loads(sys.argv[1])
    options = job["options"]
    builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    seen: list[tuple[float, float]] = []

    def take(batch: Any, number: int) -> None:
        payloads = [row.data for row in batch.select("data").collect()]
        now = time.time()
        seen.extend((put, now - put) for put in map(float, payloads))

    frame = session.readStream.format("kinesis").options(**options).load()
    query = frame.writeStream.foreachBatch(take).start()
    over = threading.Event()
    putting = threading.Thread(target=put, args=(options, over))
    putting.start()
    began = time.time() + WARM_UP_SECONDS
    time.sleep(WARM_UP_SECONDS + job["seconds"])
    over.set()
    putting.join()
    time.sleep(3)
    query.stop()
    print(json.dumps([took for put_at, took in seen if put_at >= began]))


def put(options: dict[str, str], over: threading.Event) -> None:
    properties = rp.Properties(options)
    client = boto3.client(
        "kinesis",
        endpoint_url=properties["aws.endpoint"],
        region_name=properties.get("aws.region", "us-east-1"),
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    number = 0
    while not over.wait(0.1):
        number += 1
        client.put_record(StreamName=options["stream"], Data=str(time.time()).encode(), PartitionKey=str(number))
    client.close()


if __name__ == "__main__":
    main()
