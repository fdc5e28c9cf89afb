"""A process that reads one record of `live` as a script does, with this library or with boto3: URL ours|boto3."""

import sys

KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


def ours(url):
    import recordpublisher as rp

    basic = "aws.credentials.provider.basic"
    keys = {f"{basic}.accesskeyid": "local", f"{basic}.secretkey": "local"}
    return next(rp.consume("live", keys, endpoint=url, region="us-east-1", start="TRIM_HORIZON")).data


def with_boto3(url):
    import boto3

    client = boto3.client("kinesis", region_name="us-east-1", endpoint_url=url, **KEYS)
    shard = client.list_shards(StreamName="live")["Shards"][0]["ShardId"]
    start = {"StreamName": "live", "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**start)["ShardIterator"]
    return client.get_records(ShardIterator=iterator, Limit=1)["Records"][0]["Data"]


print(len({"ours": ours, "boto3": with_boto3}[sys.argv[2]](sys.argv[1])))
