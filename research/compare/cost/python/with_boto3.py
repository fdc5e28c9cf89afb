"""Reads with boto3 in a loop: URL polling|fan-out WARM SEGMENT SEGMENTS. At the tip it polls five times a second."""

import sys
import time

import boto3
from meter import Meter

KEYS = {"region_name": "us-east-1", "aws_access_key_id": "local", "aws_secret_access_key": "local"}
SHARD = "shardId-000000000000"


def polled(client):
    start = {"StreamName": "cost", "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**start)["ShardIterator"]
    while iterator:
        answer = client.get_records(ShardIterator=iterator, Limit=10_000)
        yield answer["Records"]
        iterator = answer["NextShardIterator"]
        if answer["MillisBehindLatest"] == 0:
            time.sleep(0.2)


def pushed(client):
    stream = client.describe_stream_summary(StreamName="cost")["StreamDescriptionSummary"]["StreamARN"]
    consumer = client.register_stream_consumer(StreamARN=stream, ConsumerName="boto3")["Consumer"]["ConsumerARN"]
    time.sleep(1)  # it becomes active
    start = {"Type": "TRIM_HORIZON"}
    answer = client.subscribe_to_shard(ConsumerARN=consumer, ShardId=SHARD, StartingPosition=start)
    for event in answer["EventStream"]:
        yield event["SubscribeToShardEvent"]["Records"]


def main(url, how, *numbers):
    meter = Meter(*numbers)
    client = boto3.client("kinesis", endpoint_url=url, **KEYS)
    for records in (polled if how == "polling" else pushed)(client):
        meter.add([record["Data"] for record in records])


main(*sys.argv[1:])
