"""The Kinesis Producer Library on the embedded endpoint: what it aggregates is taken apart again, each record with its keys."""

import asyncio

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis

from compare.tools import copied, java_command, require, run
from servers.certificates import self_signed
from servers.moto_server import serve_moto
from servers.tcp_relay import relay_to

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]
COUNT = 2_000


def credentials(moto, account):
    """Of a role in an account, of which moto's STS then says that it is the caller's."""
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    sts = boto3.client("sts", endpoint_url=moto, **keys)
    found = sts.assume_role(RoleArn=f"arn:aws:iam::{account}:role/producer", RoleSessionName="kpl")["Credentials"]
    sts.close()
    return found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]


async def test_every_user_record_of_its_aggregates_is_read_with_its_keys(tmp_path, monkeypatch):
    require("mvn")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    java = await asyncio.to_thread(java_command, copied("kpl", tmp_path), "Put.java")
    sink = rp.MemorySink()
    with serve_moto() as moto:
        async with (
            relay_to(int(moto.rpartition(":")[2]), self_signed(tmp_path)) as sts,
            LocalKinesis(streams={"orders": 3}, tls=True) as endpoint,
        ):
            account = endpoint.stream("orders").arn.split(":")[4]
            ports = endpoint.url.rpartition(":")[2], str(sts.port)
            access = credentials(moto, account)
            put = await asyncio.to_thread(run, *java, *ports, "orders", str(COUNT), str(tmp_path), *access)
            given = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
            monkeypatch.setenv("AWS_CA_BUNDLE", str(endpoint.certificate_file))
            async with rp.DataFetcher("orders", given, sink=sink) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True, max_time=60)
                shards = fetcher.metrics()["shards"].values()
    assert int(put) == COUNT == len(sink.records)
    assert {int(record.data): record.partition_key for record in sink.records} == {
        number: f"key-{number % 50}" for number in range(COUNT)
    }
    assert sum(shard["numberOfAggregatedRecords"] for shard in shards) < COUNT / 10
    # the service does not return that of a record that was put alone, as the first ones are, and the last of a shard may be
    aggregated = {int(each.data): each.explicit_hash_key for each in sink.records if each.sub_sequence_number >= 0}
    assert len(aggregated) > COUNT * 0.9
    assert aggregated == {number: str(2**128 * (number % 7) // 7) if number % 5 == 0 else None for number in aggregated}
