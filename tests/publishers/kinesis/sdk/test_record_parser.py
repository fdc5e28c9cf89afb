"""The SDK trusts the types of the values in a response; here a wrong one is an error of this library."""

import json

import pytest

from recordpublisher.publishers.errors import FatalKinesisError, TransientError

from servers.scripted_kinesis import raw, stub_and_client

SHARD = {"ShardId": "shardId-000000000001", "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"}}


@pytest.mark.parametrize("shards", [True, [7], [SHARD | {"HashKeyRange": "0-9"}]], ids=str)
async def test_listed_shards_of_a_wrong_type_are_a_malformed_response(shards):
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": shards})
        with pytest.raises(TransientError, match="Malformed"):
            await client.list_shards("orders")


@pytest.mark.parametrize("key", [7, []], ids=str)
async def test_a_hash_key_of_a_wrong_type_is_a_malformed_response(key):
    async with stub_and_client() as (stub, client):
        keys = {"StartingHashKey": key, "EndingHashKey": "9"}
        stub.script("ListShards", {"Shards": [SHARD | {"HashKeyRange": keys}]})
        with pytest.raises(TransientError, match="Malformed"):
            await client.list_shards("orders")


@pytest.mark.parametrize("time", [1e300, "soon"], ids=str)
async def test_a_time_that_is_none_is_a_malformed_response(time):
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamCreationTimestamp": time}})
        with pytest.raises(TransientError, match="Malformed"):
            await client.retention_ms("orders")


@pytest.mark.parametrize(("status", "expected"), [(400, FatalKinesisError), (500, TransientError)])
@pytest.mark.parametrize("value", [7, ["x"]], ids=str)
@pytest.mark.parametrize("field", ["__type", "message"])
async def test_an_error_with_a_value_of_a_wrong_type_is_classified_by_its_status(field, value, status, expected):
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", raw(json.dumps({"__type": "X", "message": "why", field: value}).encode(), status))
        with pytest.raises(expected):
            await client.list_shards("orders")
