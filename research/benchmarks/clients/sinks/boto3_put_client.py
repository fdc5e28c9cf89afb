"""A process that puts records of 200 B with nothing but boto3, 500 a call: URL put RECORDS; prints microseconds of its CPU per record."""

import os
import sys
import time

import boto3


def main(url, _, records):
    keys = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "s"}
    client = boto3.client("kinesis", endpoint_url=url, **keys)
    payloads = [os.urandom(200) for _ in range(1_000)]

    def put_some(start):
        entries = [
            {"Data": payloads[n % 1_000], "PartitionKey": f"key-{(start + n) % 997}"} for n in range(start, start + 500)
        ]
        answer = client.put_records(StreamName="out", Records=entries)
        assert answer["FailedRecordCount"] == 0

    put_some(0)
    before = time.process_time()
    for start in range(0, int(records), 500):
        put_some(start)
    print((time.process_time() - before) / int(records) * 1e6)


main(*sys.argv[1:])
