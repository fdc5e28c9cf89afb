"""DirectTransport makes the calls of most jobs by itself, and leaves the others to the SDK."""

import pytest

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.fast_path.direct_transport import DirectTransport
from recordpublisher.publishers.kinesis.known_access import CALLS, Keys, KnownAccess
from recordpublisher.publishers.kinesis.ports import PutEntry
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.scripted_kinesis import stub_and_client

SHARD = Shard("orders", "shardId-000000000000")
KEYS = {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}
SUMMARY = {"RetentionPeriodHours": 24, "StreamCreationTimestamp": 1.5e9, "StreamARN": "arn"}


def through_the_sdk(headers):
    return "amz-sdk-invocation-id" in {name.lower() for name in headers}


async def test_the_calls_of_a_job_do_without_the_sdk():
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": [{"ShardId": SHARD.shard_id, "HashKeyRange": KEYS}]}, {"Shards": []})
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": SUMMARY})
        stub.script("GetShardIterator", {"ShardIterator": "it"})
        stub.script("GetRecords", {"Records": []})
        stub.script("PutRecords", {"Records": [{"ShardId": SHARD.shard_id}]})

        assert [shard.shard_id for shard in await client.list_shards("orders")] == [SHARD.shard_id]
        assert await client.server_time_ms("orders") > 1.7e12
        assert await client.retention_ms("orders") == 86_400_000
        assert await client.get_shard_iterator(SHARD, StartingPosition.trim_horizon()) == "it"
        assert (await client.get_records(SHARD, "it", 1)).records == []
        assert (await client.put_records("orders", [PutEntry(b"a", "k")])).failed == 0

    assert {name for name, _ in stub.requests} == set(CALLS)
    assert not any(map(through_the_sdk, stub.headers))


async def test_other_calls_go_through_the_sdk():
    async with stub_and_client() as (stub, client):
        stub.script("ListStreams", {"StreamNames": ["orders"], "HasMoreStreams": False})

        assert await client.list_streams() == ["orders"]
        assert through_the_sdk(stub.headers[0])


class Sdk:
    """The transport that is made when it is needed."""

    async def call(self, api, **parameters):
        return {"asked": api}

    async def call_with_body(self, api, body, **parameters):
        return {"asked": api, "body": body}

    async def close(self):
        self.is_closed = True


async def test_a_call_whose_host_is_not_known_goes_through_the_sdk():
    sdk, arn = Sdk(), "arn:aws-cn:kinesis:eu-west-1:123456789012:stream/orders"
    transport = DirectTransport(KnownAccess(Keys("a", "s"), "eu-west-1", None), Properties(), lambda: sdk)

    assert await transport.call("ListShards", StreamARN=arn) == {"asked": "ListShards"}
    assert await transport.call_with_body("PutRecords", b"b", StreamARN=arn) == {"asked": "PutRecords", "body": b"b"}
    await transport.close()
    assert sdk.is_closed


def test_a_file_of_trusted_cas_that_is_missing_is_an_error_at_once(monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere.pem")

    with pytest.raises(ConfigurationError, match="AWS_CA_BUNDLE"):
        DirectTransport(KnownAccess(Keys("a", "s"), "eu-west-1", None), Properties(), Sdk)


def test_a_file_of_trusted_cas_is_not_read_for_http(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text("not in PEM form")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))

    DirectTransport(KnownAccess(Keys("a", "s"), "eu-west-1", "http://127.0.0.1:1"), Properties(), Sdk)
    with pytest.raises(ConfigurationError, match="PEM"):
        DirectTransport(KnownAccess(Keys("a", "s"), "eu-west-1", "https://127.0.0.1:1"), Properties(), Sdk)
