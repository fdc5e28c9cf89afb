"""Shard ids and sequence numbers of responses are checked, since sinks make paths of them."""

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.shards import Shard

from servers.event_frames import wire_record
from servers.scripted_kinesis import stub_and_client

SHARD = Shard("orders", "shardId-000000000000")
LISTED = {
    "ShardId": "shardId-000000000001",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "99"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}


@pytest.mark.parametrize("wrong", ["../../x", "..", "/absolute", "a\n", "x" * 129, 7], ids=repr)
@pytest.mark.parametrize("field", ["ShardId", "ParentShardId"])
async def test_a_listed_shard_id_that_is_none_is_a_malformed_response(field, wrong):
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": [LISTED | {field: wrong}]})
        with pytest.raises(TransientError, match="MalformedResponse"):
            await client.list_shards("orders")


@pytest.mark.parametrize("wrong", ["../1", "1\n", "", "-1", "9" * 130, "\uff11"], ids=repr)
@pytest.mark.parametrize("at", [0, 1])
async def test_a_sequence_number_that_is_none_is_a_malformed_response(at, wrong):
    numbers = ["1", "2"]
    numbers[at] = wrong
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", {"Records": [wire_record(b"", number) for number in numbers]})
        with pytest.raises(TransientError, match="not a sequence number"):
            await client.get_records(SHARD, "it", 10)


@pytest.mark.parametrize("wrong", [{"ShardId": "../x"}, {"ParentShards": ["../x"]}], ids=repr)
async def test_a_child_whose_shard_id_is_none_is_a_malformed_response(wrong):
    child = {"ShardId": "shardId-000000000001", "ParentShards": []} | wrong
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", {"Records": [], "ChildShards": [child]})
        with pytest.raises(TransientError, match="not a shard id"):
            await client.get_records(SHARD, "it", 10)
