"""A process of the peers' environment that reads replayed KPL aggregates with botocore and aws_kinesis_agg: URL get_records SUB_RECORDS.

Prints JSON: microseconds of its CPU per sub-record, reading and taking apart (`whole`), and de-aggregation alone (`apart`). botocore's
client is the one that boto3 wraps.
"""

import json
import sys
import time

from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from botocore.session import Session


def polled(client):
    shard = {"StreamName": "replay", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**shard)["ShardIterator"]
    while iterator:
        answer = client.get_records(ShardIterator=iterator, Limit=100)
        yield answer["Records"]
        iterator = answer.get("NextShardIterator")


def main(url, _, sub_records):
    session = Session()
    session.set_credentials("a", "s")
    client = session.create_client("kinesis", region_name="us-east-1", endpoint_url=url)
    began, apart, seen = time.process_time(), 0.0, 0
    for records in polled(client):
        before = time.process_time()
        seen += sum(1 for _ in iter_deaggregate_records(records, data_format="Boto3"))
        apart += time.process_time() - before
    whole = time.process_time() - began
    assert seen == int(sub_records), seen
    print(json.dumps({"whole": whole / seen * 1e6, "apart": apart / seen * 1e6}))


main(*sys.argv[1:])
