"""What `doctor` says about the streams of a publisher that does not read Kinesis."""

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.own_source import own_source_findings
from recordpublisher.plugins.host.manager import load_registry

from servers.moto_server import KEYS, serve_moto

TABLE = "orders-of-doctor"
"""moto keeps its tables for the process, whichever server made them."""


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


async def found(moto, table, publisher="DYNAMODB_STREAMS"):
    given = {"aws.endpoint": moto, "aws.region": "us-east-1", "flink.stream.recordpublisher": publisher, **KEYS}
    return await own_source_findings(load_registry(), rp.Properties(given), table)


async def test_the_shards_of_a_table_are_listed(moto):
    key = {"AttributeName": "id"}
    access = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "s"}
    dynamodb = boto3.client("dynamodb", endpoint_url=moto, **access)
    dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[{**key, "KeyType": "HASH"}],
        AttributeDefinitions=[{**key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    dynamodb.close()

    shards, records = await found(moto, TABLE)
    assert (shards.name, shards.verdict, shards.words) == (f"{TABLE}: shards", "ok", "DYNAMODB_STREAMS lists 1")
    assert (records.name, records.verdict) == (f"{TABLE}: records", "not checked")


async def test_a_table_without_a_stream_is_a_problem(moto):
    shards, _ = await found(moto, "none")
    assert (shards.name, shards.verdict) == ("none: shards", "PROBLEM")
    assert "none" in shards.words


async def test_streams_of_kinesis_are_left_to_their_own_checks(moto):
    assert await found(moto, "orders", "POLLING") is None
    assert await found(moto, "orders", "EFO") is None
