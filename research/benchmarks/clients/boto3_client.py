"""A process that reads one replayed shard with nothing but boto3: URL get_records|subscribe_to_shard RECORDS [BODY].

Prints microseconds of its CPU per record, from the first call to the last record; making the client is not in it.
"""

import sys
import time

import boto3

CONSUMER = "arn:aws:kinesis:us-east-1:000000000000:stream/replay/consumer/bench:1"
SHARD = "shardId-000000000000"


def polled(client, body):
    iterator = client.get_shard_iterator(StreamName="replay", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON")[
        "ShardIterator"
    ]
    while iterator:
        answer = client.get_records(ShardIterator=iterator, Limit=body)
        yield answer["Records"]
        iterator = answer.get("NextShardIterator")


def pushed(client, _):
    start = {"Type": "TRIM_HORIZON"}
    answer = client.subscribe_to_shard(ConsumerARN=CONSUMER, ShardId=SHARD, StartingPosition=start)
    for event in answer["EventStream"]:
        yield event["SubscribeToShardEvent"]["Records"]


def main(url, how, records, body=10_000):
    keys = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "s"}
    client = boto3.client("kinesis", endpoint_url=url, **keys)
    before = time.process_time()
    seen = sum(len(batch) for batch in {"get_records": polled, "subscribe_to_shard": pushed}[how](client, int(body)))
    spent = time.process_time() - before
    assert seen == int(records), seen
    print(spent / seen * 1e6)


main(*sys.argv[1:])
