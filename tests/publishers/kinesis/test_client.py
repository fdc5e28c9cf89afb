import asyncio
import time

import pytest
from aiohttp import web

from recordpublisher.publishers.errors import (
    ConfigurationError,
    ExpiredIteratorError,
    FatalKinesisError,
    StreamNotActiveError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.client import StreamTransports
from recordpublisher.publishers.kinesis.direct_transport import DirectTransport
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import HashRange, Shard

from servers.event_frames import initial_response, wire_record
from servers.scripted_kinesis import never, raw, refusal, stub_and_client

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARD = Shard("orders", "shardId-000000000000")


def described(shard_id, **more):
    keys = {"StartingHashKey": "0", "EndingHashKey": "99"}
    return {"ShardId": shard_id, "HashKeyRange": keys, "SequenceNumberRange": {"StartingSequenceNumber": "1"}, **more}


async def test_get_records_decodes_records_iterator_and_lag():
    async with stub_and_client() as (stub, client):
        record = wire_record(b"\x00binary", "49", key="k", arrival=1700000000.5)
        stub.script("GetRecords", {"Records": [record], "NextShardIterator": "next", "MillisBehindLatest": 12})
        response = await client.get_records(SHARD, "it", 500)
    assert response.records == [UserRecord(b"\x00binary", "49", 1700000000.5, "k")]
    assert (response.next_iterator, response.millis_behind_latest) == ("next", 12)
    assert stub.requests == [("GetRecords", {"ShardIterator": "it", "Limit": 500})]


async def test_s4_a_record_may_lack_the_partition_key_and_its_arrival_may_be_whole_seconds():
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", {"Records": [wire_record(b"", "1", key=None, arrival=17)], "NextShardIterator": "n"})
        (record,) = (await client.get_records(SHARD, "it", 1)).records
    assert record.partition_key is None
    assert record.arrival == 17.0


@pytest.mark.parametrize("last", [{}, {"NextShardIterator": None}])
async def test_r4_the_next_iterator_may_be_null_or_absent_at_the_end(last):
    child = {
        "ShardId": "shardId-000000000002",
        "ParentShards": ["shardId-000000000000", "shardId-000000000001"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "340282366920938463463374607431768211455"},
    }
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", {"Records": [], "MillisBehindLatest": 0, "ChildShards": [child], **last})
        response = await client.get_records(SHARD, "it", 1)
    assert response.next_iterator is None
    parents = ("shardId-000000000000", "shardId-000000000001")
    assert response.child_shards == (Shard("orders", "shardId-000000000002", parents, HashRange()),)


async def test_calls_are_signed_for_the_region_and_carry_no_secret():
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", {"Records": []})
        await client.get_records(SHARD, "it", 1)
        signed = stub.headers[0]["Authorization"]
    assert "AKIDEXAMPLE/" in signed
    assert "/eu-west-1/kinesis/aws4_request" in signed
    assert "verysecret" not in str(stub.headers)


async def test_an_error_response_is_parsed_by_the_sdk():
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", refusal("ExpiredIteratorException", "Iterator expired."))
        with pytest.raises(ExpiredIteratorError, match="Iterator expired"):
            await client.get_records(SHARD, "it", 1)


async def test_the_sdk_retries_nothing():
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", refusal("InternalFailure", "oh", 500), {"Records": []})
        with pytest.raises(TransientError):
            await client.get_records(SHARD, "it", 1)
        assert len(stub.requests) == 1


async def test_a_malformed_body_is_transient():
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", raw(b'{"Records": [{"Data": 5}]}'))
        with pytest.raises(TransientError, match="ValidationError"):
            await client.get_records(SHARD, "it", 1)


async def test_a_call_without_a_response_in_time_is_transient():
    async with stub_and_client(aws_request_timeout="100ms") as (stub, client):
        stub.script("GetRecords", never)
        with pytest.raises(TransientError, match=r"in time|[Tt]imeout"):
            await client.get_records(SHARD, "it", 1)


async def test_r3_a_call_is_cancelled_at_once():
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", never)
        task = asyncio.ensure_future(client.get_records(SHARD, "it", 1))
        await stub.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("position", "parameters"),
    [
        (StartingPosition.trim_horizon(), {"ShardIteratorType": "TRIM_HORIZON"}),
        (StartingPosition.latest(), {"ShardIteratorType": "LATEST"}),
        (
            StartingPosition.at_timestamp(1_700_000_000_123),
            {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": 1_700_000_000.123},
        ),
    ],
)
async def test_an_iterator_starts_at_the_position_to_the_millisecond(position, parameters):
    async with stub_and_client() as (stub, client):
        stub.script("GetShardIterator", {"ShardIterator": "it"})
        assert await client.get_shard_iterator(SHARD, position) == "it"
        assert stub.requests_of("GetShardIterator") == [
            {"StreamName": "orders", "ShardId": SHARD.shard_id, **parameters}
        ]


async def test_a_known_arn_is_sent_with_every_call():
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamARN": ARN}})
        stub.script("ListShards", {"Shards": [described("shardId-0")]})
        stub.script("GetShardIterator", {"ShardIterator": "it"})
        stub.script("GetRecords", {"Records": []})
        assert await client.stream_arn("orders") == ARN
        (shard,) = await client.list_shards("orders")
        await client.get_shard_iterator(shard, StartingPosition.trim_horizon())
        await client.get_records(shard, "it", 1)
    assert shard.stream_arn == ARN
    assert all(sent["StreamARN"] == ARN and "StreamName" not in sent for _, sent in stub.requests[1:])


async def test_a_stream_given_by_arn_may_be_named_later():
    async with stub_and_client((ARN,)) as (stub, client):
        stub.script("ListShards", {"Shards": [described("shardId-0")]}, {"Shards": [described("shardId-0")]})
        (by_arn,) = await client.list_shards(ARN)
        (by_name,) = await client.list_shards("orders")
    assert by_arn == by_name == Shard("orders", "shardId-0", (), HashRange(0, 99), stream_arn=ARN)


async def test_s3_shards_are_listed_page_by_page_with_the_token_alone():
    async with stub_and_client() as (stub, client):
        stub.script(
            "ListShards", {"Shards": [described("shardId-0")], "NextToken": "t"}, {"Shards": [described("shardId-1")]}
        )
        shards = await client.list_shards("orders")
    assert [shard.shard_id for shard in shards] == ["shardId-0", "shardId-1"]
    assert stub.requests_of("ListShards") == [{"StreamName": "orders"}, {"NextToken": "t"}]


async def test_s3_after_an_expired_token_listing_continues_after_the_last_shard():
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": [described("shardId-0")], "NextToken": "t"})
        stub.script("ListShards", refusal("ExpiredNextTokenException"), {"Shards": [described("shardId-1")]})
        shards = await client.list_shards("orders")
    assert [shard.shard_id for shard in shards] == ["shardId-0", "shardId-1"]
    assert stub.requests_of("ListShards")[2] == {"StreamName": "orders", "ExclusiveStartShardId": "shardId-0"}


async def test_shards_that_are_each_others_parents_are_malformed():
    async with stub_and_client() as (stub, client):
        ring = [described(f"shardId-{n}") | {"ParentShardId": f"shardId-{(n + 1) % 3}"} for n in range(3)]
        stub.script("ListShards", {"Shards": ring})
        with pytest.raises(TransientError, match=r"MalformedResponse.*cycle"):
            await client.list_shards("orders")


@pytest.mark.parametrize("shards", [["shardId-0"], []])
async def test_a_listing_whose_next_page_never_ends_is_malformed(shards):
    class Endless:
        pages = 0

        async def call(self, api, **parameters):
            self.pages += 1
            names = {"StreamNames": ["orders"] * len(shards), "HasMoreStreams": True}
            return {"Shards": [described(each) for each in shards], "NextToken": f"t{self.pages}", **names}

    endless = Endless()
    client = KinesisClient(Properties(), transport=endless)
    with pytest.raises(TransientError, match="the listing does not end"):
        await client.list_shards("orders")
    if shards:
        with pytest.raises(TransientError, match="the listing does not end"):
            await client.list_streams()
    assert endless.pages < 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"ParentShardId": "shardId-0"},
        {"AdjacentParentShardId": "shardId-0"},
        {"HashKeyRange": {"StartingHashKey": "9", "EndingHashKey": "0"}},
    ],
)
async def test_a_shard_that_is_its_own_parent_or_has_a_range_without_keys_is_malformed(wrong):
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": [described("shardId-0", **wrong)]})
        with pytest.raises(TransientError, match="not as documented"):
            await client.list_shards("orders")


async def test_a_listed_shard_has_its_parents_and_whether_it_is_closed():
    merged = described("shardId-2", ParentShardId="shardId-0", AdjacentParentShardId="shardId-1")
    merged["SequenceNumberRange"]["EndingSequenceNumber"] = "9"
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": [merged]})
        (shard,) = await client.list_shards("orders")
    assert shard.parents == ("shardId-0", "shardId-1")
    assert shard.closed
    assert stub.requests_of("ListShards") == [{"StreamName": "orders"}]


async def test_a_stream_that_is_being_created_is_no_missing_stream():
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", refusal("ResourceNotFoundException"))
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamStatus": "CREATING"}})
        with pytest.raises(StreamNotActiveError, match="stream 'orders' is CREATING"):
            await client.list_shards("orders")


async def test_an_unknown_stream_is_an_error_that_lists_the_existing_ones():
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", refusal("ResourceNotFoundException"))
        stub.script("ListStreams", {"StreamNames": ["a"], "HasMoreStreams": True}, {"StreamNames": ["b"]})
        with pytest.raises(
            StreamNotFoundError,
            match=r"'order' does not exist in eu-west-1 \(from aws.region\) at http://127.0.0.1:\d+; existing streams: a, b",
        ):
            await client.list_shards("order")
        assert stub.requests_of("ListStreams") == [{}, {"ExclusiveStartStreamName": "a"}]


async def test_an_unknown_stream_is_an_error_also_without_permission_to_list_streams():
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", refusal("ResourceNotFoundException"))
        stub.script("ListStreams", refusal("AccessDeniedException"))
        with pytest.raises(StreamNotFoundError, match="'order' does not exist"):
            await client.stream_arn("order")


async def test_p3_the_servers_time_is_the_date_header_in_whole_seconds():
    async def dated(request):
        return web.json_response({"Shards": []}, headers={"Date": "Tue, 14 Nov 2023 22:13:20 GMT"})

    async with stub_and_client() as (stub, client):
        stub.script("ListShards", dated)
        assert await client.server_time_ms("orders") == 1_700_000_000_000


async def test_p3_a_response_without_a_date_is_an_error():
    async def undated(request):
        return web.json_response({"Shards": []}, headers={"Date": ""})

    async with stub_and_client() as (stub, client):
        stub.script("ListShards", undated)
        with pytest.raises(FatalKinesisError, match="Date header"):
            await client.server_time_ms("orders")


async def test_f8_a_consumer_that_does_not_exist_is_none():
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamConsumer", refusal("ResourceNotFoundException"))
        assert await client.describe_consumer(ARN, "me") is None


async def test_f8_a_registered_consumer_is_described():
    consumer = {"ConsumerName": "me", "ConsumerARN": ARN + "/consumer/me:1", "ConsumerStatus": "CREATING"}
    async with stub_and_client() as (stub, client):
        stub.script("RegisterStreamConsumer", {"Consumer": {**consumer, "ConsumerCreationTimestamp": 1.5}})
        registered = await client.register_consumer(ARN, "me")
        stub.script("DeregisterStreamConsumer", raw(b""))
        await client.deregister_consumer(registered.arn)
    assert (registered.name, registered.status) == ("me", "CREATING")
    assert stub.requests_of("DeregisterStreamConsumer") == [{"ConsumerARN": registered.arn}]


@pytest.mark.parametrize(("strategy", "by_key"), [({}, True), ({"RecordDistributionStrategy": "AUTO"}, False)])
async def test_s4_keys_do_not_decide_the_shard_under_auto_distribution(strategy, by_key):
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamARN": ARN, **strategy}})
        found = await client.record_distribution("orders")
        assert found.by_key is by_key
        assert found.server_ms is not None
        assert abs(found.server_ms / 1000 - time.time()) < 3600


async def test_f1_subscriptions_and_calls_use_separate_clients_with_unlimited_pools():
    done = asyncio.Event()

    async def wait(request):
        await done.wait()

    async with stub_and_client() as (stub, client):
        stub.script("SubscribeToShard", *[[initial_response(), wait]] * 12)
        stub.script("GetRecords", {"Records": []})
        async with asyncio.timeout(60):  # twelve are more than the SDK's pool of ten
            open_ones = [await client.subscribe_to_shard("c" * 9, SHARD, StartingPosition.latest()) for _ in range(12)]
            await client.get_records(SHARD, "it", 1)
        done.set()
        for subscription in open_ones:
            await subscription.close()


async def test_an_unreachable_endpoint_is_transient():
    given = {"aws.endpoint": "http://127.0.0.1:9", "aws.credentials.provider": "BASIC"}
    keys = {"aws.credentials.provider.basic.accesskeyid": "a", "aws.credentials.provider.basic.secretkey": "s"}
    async with KinesisClient(Properties({**given, **keys})) as client:
        with pytest.raises(TransientError, match=r"127\.0\.0\.1:9"):
            await client.list_shards("orders")


def test_c2_a_bad_endpoint_fails_at_construction():
    with pytest.raises(ConfigurationError, match=r"aws\.endpoint.*'localhost:4567'.*http"):
        KinesisClient(Properties({"aws.endpoint": "localhost:4567", "aws.region": "eu-west-1"}))


async def test_a_stream_of_another_account_is_named_by_its_arn_in_every_call():
    other = ARN.replace("123456789012", "999999999999")
    shard = Shard("orders", "shardId-000000000000", stream_arn=other)
    consumer = {"ConsumerName": "app", "ConsumerARN": f"{other}/consumer/app:1", "ConsumerStatus": "ACTIVE"}
    async with stub_and_client((other,)) as (stub, client):
        stub.script("ListShards", {"Shards": [described("shardId-000000000000")]})
        stub.script("GetShardIterator", {"ShardIterator": "it"})
        stub.script("GetRecords", {"Records": [], "NextShardIterator": "n"})
        stub.script("RegisterStreamConsumer", {"Consumer": consumer})
        assert (await client.list_shards(other))[0].stream_arn == other
        await client.get_records(shard, await client.get_shard_iterator(shard, StartingPosition.trim_horizon()), 1)
        await client.register_consumer(await client.stream_arn(other), "app")

    assert len(stub.requests) == 4  # the ARN of a stream that was given by ARN is not requested
    assert {sent["StreamARN"] for _, sent in stub.requests} == {other}


@pytest.mark.parametrize("size", [None, "", "x", "9" * 5_000, [], {}, 0, -1, -(10**30)])
async def test_a_size_of_records_that_is_none_is_malformed(size):
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"MaxRecordSizeInKiB": size}})
        with pytest.raises(TransientError, match="DescribeStreamSummary failed with MalformedResponse"):
            await client.stream_summary("orders")


@pytest.mark.parametrize(("listed", "known"), [("49", "49"), ("9" * 5_000, None), ("x", None), (None, None)])
async def test_a_beginning_that_is_no_number_is_not_known(listed, known):
    async with stub_and_client() as (stub, client):
        stub.script(
            "ListShards", {"Shards": [described("shardId-0", SequenceNumberRange={"StartingSequenceNumber": listed})]}
        )
        (shard,) = await client.list_shards("orders")
    assert shard.starting_sequence_number == known
    assert not shard.begins_at("50")


# StreamTransports: one transport for each region and role.


EU, US = (f"arn:aws:kinesis:{region}:123456789012:stream/orders" for region in ("eu-west-1", "us-east-1"))
KEYS = {
    "aws.credentials.provider.basic.accesskeyid": "a",
    "aws.credentials.provider.basic.secretkey": "s",
    "aws.http.client": "SDK",
}


@pytest.fixture
def transports():
    return lambda *streams, **more: StreamTransports(Properties(KEYS | more), streams)


def test_streams_of_one_region_share_a_transport(transports):
    given = transports(EU, "clicks", f"mine={EU}-2", **{"aws.region": "eu-west-1"})
    assert given.for_stream(EU) is given.for_stream(None) is given.for_stream(f"{EU}-2")


def test_an_arn_decides_the_region(transports):
    given = transports(EU, US, **{"aws.region": "eu-central-1"})
    assert [given.for_stream(arn)._region for arn in (EU, US, None)] == ["eu-west-1", "us-east-1", "eu-central-1"]


def test_an_arn_that_was_not_given_at_first_has_a_transport_too(transports):
    given = transports("clicks", **{"aws.region": "eu-west-1"})
    assert given.for_stream(US)._region == "us-east-1"


def test_with_one_endpoint_for_all_there_is_one_transport(transports):
    given = transports(EU, US, **{"aws.endpoint": "http://127.0.0.1:1"})
    assert given.for_stream(EU) is given.for_stream(US)


def test_a_region_with_an_endpoint_of_its_own_has_a_transport_of_its_own(transports):
    endpoints = {"aws.endpoint": "http://127.0.0.1:1", "aws.endpoint.us-east-1": "http://127.0.0.1:2"}
    given = transports(EU, US, **endpoints)
    assert [given.for_stream(arn)._endpoint for arn in (EU, US)] == ["http://127.0.0.1:1", "http://127.0.0.1:2"]


def test_an_error_can_say_where_a_stream_was_looked_for(transports, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert transports("clicks", **{"aws.region": "eu-west-1"}).place_of(None) == "eu-west-1 (from aws.region)"
    assert transports(EU).place_of(EU) == "eu-west-1, account 123456789012 (from its ARN)"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    assert transports("clicks").place_of(None) == "eu-west-3 (from AWS_DEFAULT_REGION)"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert transports("clicks").place_of(None) == "eu-west-2 (from AWS_REGION)"


def test_what_needs_no_sdk_gets_a_transport_without_it():
    own = StreamTransports(Properties(KEYS | {"aws.http.client": "OWN", "aws.region": "eu-west-1"}), [EU])

    assert isinstance(own.for_stream(EU), DirectTransport)
