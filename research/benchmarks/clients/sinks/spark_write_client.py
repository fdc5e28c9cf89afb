"""A process that puts rows of 200 B as a task of Spark's writer does: URL plain|ids|aggregated RECORDS; prints microseconds of its CPU
per row, from Arrow batches of 10,000 rows on; what Spark does before is not in it."""

import os
import sys
import time

import pyarrow as pa

from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.spark.rows_to_records import IdField, RowIds, RowsToRecords, WriteColumns
from recordpublisher.plugins.spark.writer import TaskWrite, WriteOptions, WriterPool
from recordpublisher.publishers.kinesis import KinesisClient

ROWS = 10_000


def main(url, how, records):
    options = WriteOptions.parse(
        {
            "stream": "out",
            "aws.region": "us-east-1",
            "aws.endpoint": url,
            "aws.credentials.provider.basic.accesskeyid": "a",
            "aws.credentials.provider.basic.secretkey": "s",
            "ratelimit": "1000000",
            "writetasks": "1",
            "aggregationenabled": str(how == "aggregated"),
        }
    )
    batches = [batch() for _ in range(int(records) // ROWS)]
    ids = (RowIds("query/1/0"), IdField("rowId")) if how == "ids" else (None, None)

    def write(some):
        rows = RowsToRecords(WriteColumns(0, 1), "out", *ids)
        make = lambda: WriterPool(options.settings, lambda _: KinesisClient(options.properties))  # noqa: E731
        TaskWrite(0, 0, "task 0", rows, worker_loop(), ("write",), make).run(some)

    write([batch()])
    before = time.process_time()
    write(batches)
    print((time.process_time() - before) / int(records) * 1e6)
    os._exit(sys.stdout.flush() or 0)  # as Spark ends its workers


def batch():
    data = [b'{"text":"%b"}' % os.urandom(94).hex().encode() for _ in range(ROWS)]
    return pa.record_batch([data, [f"key-{number % 997}" for number in range(ROWS)]], names=["data", "partitionKey"])


main(*sys.argv[1:])
