"""A certificate without subjectAltName, with the host as common name only: what boto3 believes is believed, and nothing else."""

import asyncio

import boto3
import pytest
from botocore.exceptions import SSLError

from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.certificates import self_signed
from servers.tcp_relay import relay_to

CONSUMER = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/me:1"


def boto3_believes(url):
    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    try:
        session.client("kinesis", endpoint_url=url).list_streams()
    except SSLError:
        return False
    return True


async def client_believes(url, name, value):
    access = {f"aws.credentials.provider.basic.{key}": "local" for key in ("accesskeyid", "secretkey")}
    shard = Shard("orders", "shardId-000000000000")
    async with KinesisClient(
        Properties({"aws.endpoint": url, "aws.region": "us-east-1", **access, name: value})
    ) as client:
        try:
            if value == "HTTP2":
                await client.subscribe_to_shard(CONSUMER, shard, StartingPosition.trim_horizon())
            for _ in range(2):  # the second one by the fast path
                await client.get_shard_iterator(shard, StartingPosition.trim_horizon())
        except FatalKinesisError as error:
            return error.code != "CertificateVerificationFailed"
        except ConfigurationError as error:  # after the handshake
            return "does not offer h2" in str(error)
    return True


@pytest.mark.parametrize(("host", "believed"), [("localhost", True), ("127.0.0.1", False)])
async def test_a_common_name_counts_as_it_does_for_boto3(tmp_path, monkeypatch, host, believed):
    files = self_signed(tmp_path, host, alternative=False)
    monkeypatch.setenv("AWS_CA_BUNDLE", files[0])
    clients = [("aws.http.client", "OWN"), ("aws.http.client", "SDK"), ("aws.http.protocol.version", "HTTP2")]
    with serve_in_thread(streams={"orders": 1}) as endpoint:
        async with relay_to(endpoint.port, files) as relay:
            url = relay.url.replace("127.0.0.1", host)
            verdicts = {"boto3": await asyncio.to_thread(boto3_believes, url)}
            for name, value in clients:
                verdicts[value] = await client_believes(url, name, value)
    assert verdicts == dict.fromkeys(["boto3", "OWN", "SDK", "HTTP2"], believed)
