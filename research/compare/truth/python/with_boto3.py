"""Prints what a loop around boto3 reads, a thread for each shard, with positions in files: URL FOLDER."""

import sys
import threading
import time
from pathlib import Path

import boto3

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
ACCESS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
kinesis = boto3.client("kinesis", endpoint_url=URL, **ACCESS)
started = set()


def start():
    """Read every shard that is listed and has no thread."""
    for shard in kinesis.list_shards(StreamName="orders")["Shards"]:
        if shard["ShardId"] not in started:
            started.add(shard["ShardId"])
            threading.Thread(target=read, args=(shard["ShardId"],)).start()


def iterator_of(shard, file):
    place = {"ShardIteratorType": "TRIM_HORIZON"}
    if file.exists():
        place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": file.read_text()}
    return kinesis.get_shard_iterator(StreamName="orders", ShardId=shard, **place)["ShardIterator"]


def read(shard):
    """Until its end, when its children are listed; a call that fails more often than the SDK tries again is made again."""
    file, iterator = FOLDER / shard, None
    while True:
        try:
            iterator = iterator or iterator_of(shard, file)
            read = kinesis.get_records(ShardIterator=iterator)
        except Exception as error:
            print(error, file=sys.stderr)
            iterator = None
            continue
        for record in read["Records"]:
            sys.stdout.write(f"{shard} {record['Data'].decode()}\n")  # at once: other threads write too
        sys.stdout.flush()
        if read["Records"]:
            file.write_text(read["Records"][-1]["SequenceNumber"])
        iterator = read.get("NextShardIterator")
        if iterator is None:
            return start()
        time.sleep(0.2)


FOLDER.mkdir(exist_ok=True)
start()
