"""A process that puts with boto3 and shares a shard: URL fixed|exponential SECONDS NUMBER; prints records taken a second.

`fixed` sends full calls and what was refused again after 0.1 s, for ever; `exponential` pauses longer after each refusal, with full jitter.
"""

import random
import sys
import time

import boto3

BASE_SECONDS, MAX_SECONDS = 0.1, 5.0


def pause_of(how, failures):
    if how == "fixed":
        return BASE_SECONDS
    return random.random() * min(MAX_SECONDS, BASE_SECONDS * 2**failures)


def main(url, how, seconds, number):
    client = boto3.client(
        "kinesis", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    count = taken = failures = 0
    waiting = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(waiting) < 500:
            waiting.append({"Data": bytes(100), "PartitionKey": f"{number}-{count}"})
            count += 1
        results = client.put_records(StreamName="s", Records=waiting)["Records"]
        refused = [record for record, result in zip(waiting, results, strict=True) if "ErrorCode" in result]
        taken += len(waiting) - len(refused)
        waiting = refused
        if refused:
            time.sleep(pause_of(how, failures))
        failures = failures + 1 if refused else 0
    print(taken / seconds)


main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
