"""The endpoint as a server, in asyncio and in a thread."""

import http.client
import socket
import time
from contextlib import closing
from datetime import UTC, datetime

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

import recordpublisher as rp
from recordpublisher.local import Delays, LocalKinesis, ManualClock, Quotas, serve_in_thread
from recordpublisher.local.errors import ApiError
from recordpublisher.publishers.errors import ConfigurationError

ONCE = Config(retries={"total_max_attempts": 1})
SHARD = "shardId-000000000000"

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def headers(operation: str) -> dict[str, str]:
    return {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-json-1.1"}


def code_of(raised: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    response = raised.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_boto3_puts_and_reads(serve):
    _, kinesis = serve(streams={"orders": 1})
    put = kinesis.put_records(
        StreamName="orders", Records=[{"Data": b"%d" % i, "PartitionKey": str(i)} for i in range(500)]
    )
    assert put["FailedRecordCount"] == 0
    place = kinesis.get_shard_iterator(StreamName="orders", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON")
    records = kinesis.get_records(ShardIterator=place["ShardIterator"])["Records"]
    assert [record["Data"] for record in records] == [b"%d" % i for i in range(500)]
    assert records[0]["SequenceNumber"] == put["Records"][0]["SequenceNumber"]


def test_boto3_subscribes_and_sees_the_shard_end(serve):
    endpoint, kinesis = serve(streams={"orders": 1}, clock=ManualClock())
    stream = endpoint.endpoint.stream("orders")
    consumer = kinesis.register_stream_consumer(StreamARN=stream.arn, ConsumerName="c")["Consumer"]
    endpoint.call(endpoint.endpoint.clock.advance, 100)
    start = {"ConsumerARN": consumer["ConsumerARN"], "ShardId": SHARD, "StartingPosition": {"Type": "LATEST"}}
    with closing(kinesis.subscribe_to_shard(**start)["EventStream"]) as events:
        kinesis.put_record(StreamName="orders", Data=b"live", PartitionKey="k")
        received = iter(events)
        assert next(received)["SubscribeToShardEvent"]["Records"][0]["Data"] == b"live"
        kinesis.split_shard(StreamName="orders", ShardToSplit=SHARD, NewStartingHashKey="1000")
        assert len(next(received)["SubscribeToShardEvent"]["ChildShards"]) == 2
        assert list(received) == []


def test_heartbeats_take_over_and_date_follow_the_clock(serve):
    clock = ManualClock(1_600_000_000_000)
    endpoint, kinesis = serve(streams={"orders": 1}, clock=clock)
    stream = endpoint.endpoint.stream("orders")
    consumer = kinesis.register_stream_consumer(StreamARN=stream.arn, ConsumerName="c")["Consumer"]
    endpoint.call(clock.advance, 100)
    start = {"ConsumerARN": consumer["ConsumerARN"], "ShardId": SHARD, "StartingPosition": {"Type": "LATEST"}}
    first = kinesis.subscribe_to_shard(**start)
    assert first["ResponseMetadata"]["HTTPHeaders"]["date"] == "Sun, 13 Sep 2020 12:26:40 GMT"
    events = iter(first["EventStream"])
    with pytest.raises(ClientError, match="ResourceInUseException"):
        kinesis.subscribe_to_shard(**start)
    endpoint.call(clock.advance, 5000)
    assert next(events)["SubscribeToShardEvent"]["Records"] == []
    second = kinesis.subscribe_to_shard(**start)
    with pytest.raises(EventStreamError, match="ResourceInUseException"):
        next(events)
    endpoint.call(clock.advance, 300_000)
    assert list(second["EventStream"]) == []
    for response in (first, second):
        response["EventStream"].close()


def test_errors_have_the_services_format(serve):
    _, kinesis = serve()
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException) as raised:
        kinesis.describe_stream_summary(StreamName="missing")
    assert code_of(raised) == ("ResourceNotFoundException", 400)


def test_an_unknown_operation_is_an_error(serve):
    endpoint, _ = serve()
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port)
    connection.request("POST", "/", "{}", headers("CreateRiver"))
    response = connection.getresponse()
    assert (response.status, b"UnknownOperationException" in response.read()) == (400, True)
    connection.close()


def test_a_body_that_is_not_json_is_a_serialization_error(serve):
    endpoint, _ = serve()
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port)
    connection.request("POST", "/", "{", headers("ListStreams"))
    response = connection.getresponse()
    assert response.status == 400
    assert b"SerializationException" in response.read()
    connection.close()


def test_planned_errors_reach_the_client(serve):
    endpoint, kinesis = serve(signing={"config": ONCE}, streams={"orders": 1})
    endpoint.endpoint.faults.fail_next("ListShards", "InternalFailure", status=500)
    with pytest.raises(ClientError) as raised:
        kinesis.list_shards(StreamName="orders")
    assert code_of(raised) == ("InternalFailure", 500)
    kinesis.list_shards(StreamName="orders")


def test_a_dropped_connection_is_a_network_error_that_boto3_retries(serve):
    endpoint, kinesis = serve(streams={"orders": 1})
    endpoint.endpoint.faults.drop_next("ListShards")
    response = kinesis.list_shards(StreamName="orders")
    assert response["ResponseMetadata"]["RetryAttempts"] == 1


def test_quotas_can_be_turned_on(serve):
    _, kinesis = serve(signing={"config": ONCE}, streams={"orders": 1}, quotas=Quotas(reads=1), clock=ManualClock())
    place = kinesis.get_shard_iterator(StreamName="orders", ShardId=SHARD, ShardIteratorType="LATEST")["ShardIterator"]
    kinesis.get_records(ShardIterator=place)
    with pytest.raises(ClientError, match="ProvisionedThroughputExceededException"):
        kinesis.get_records(ShardIterator=place)


@pytest.mark.parametrize(
    ("key", "secret", "code"),
    [
        ("unknown", "open sesame", "UnrecognizedClientException"),
        ("me", "guessed", "InvalidSignatureException"),
    ],
)
def test_wrong_credentials_are_refused_when_the_endpoint_has_credentials(serve, key: str, secret: str, code: str):
    _, kinesis = serve(signing={"key": key, "secret": secret, "config": ONCE}, credentials={"me": "open sesame"})
    with pytest.raises(ClientError) as raised:
        kinesis.list_streams()
    assert code_of(raised) == (code, 400)


def test_correct_credentials_are_accepted_and_a_missing_signature_is_refused(serve):
    endpoint, kinesis = serve(signing={"key": "me", "secret": "open sesame"}, credentials={"me": "open sesame"})
    assert kinesis.list_streams()["StreamNames"] == []
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port)
    connection.request("POST", "/", "{}", headers("ListStreams"))
    assert b"MissingAuthenticationToken" in connection.getresponse().read()
    connection.close()


def test_properties_contain_the_endpoint_and_its_credentials(serve):
    endpoint, _ = serve(credentials={"me": "open sesame"}, region="eu-west-1")
    properties = endpoint.endpoint.properties()
    kinesis = boto3.client(
        "kinesis",
        region_name=properties["aws.region"],
        endpoint_url=properties["aws.endpoint"],
        aws_access_key_id=properties["aws.credentials.provider.basic.accesskeyid"],
        aws_secret_access_key=properties["aws.credentials.provider.basic.secretkey"],
    )
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    assert arn.startswith("arn:aws:kinesis:eu-west-1:")
    kinesis.close()


def test_timestamps_follow_the_endpoints_clock(serve):
    _, kinesis = serve(streams={"orders": 1}, clock=ManualClock(1_600_000_000_000))
    summary = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
    assert summary["StreamCreationTimestamp"].astimezone(UTC) == datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)


async def test_a_port_in_use_is_a_configuration_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"'port' is {port}"):
            await LocalKinesis(port=port).start()


@pytest.mark.parametrize("port", [-1, 65536])
async def test_an_invalid_port_is_a_configuration_error(port: int):
    with pytest.raises(ConfigurationError, match=f"'port' is {port}"):
        await LocalKinesis(port=port).start()


def test_a_host_that_other_machines_reach_must_be_allowed():
    with pytest.raises(ConfigurationError, match=r"'host' is '0\.0\.0\.0'"):
        LocalKinesis(host="0.0.0.0")
    LocalKinesis(host="0.0.0.0", allow_remote=True)


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "localhost"])
def test_every_loopback_address_is_allowed(host: str):
    LocalKinesis(host=host)


@pytest.mark.parametrize("streams", [{"no spaces": 1}, {"orders": 0}])
def test_an_invalid_stream_is_a_configuration_error(streams: dict[str, int]):
    with pytest.raises(ConfigurationError, match="NAME:SHARDS"):
        LocalKinesis(streams=streams)


def test_an_error_at_the_start_in_a_thread_is_raised_to_the_caller(serve):
    endpoint, _ = serve()
    with pytest.raises(ConfigurationError, match="'port' is"):
        serve(port=endpoint.port)


def test_closing_does_not_wait_for_open_subscriptions(connect):
    with serve_in_thread(streams={"orders": 1}, delays=Delays(consumer=0)) as endpoint:
        kinesis = connect(endpoint)
        consumer = endpoint.call(endpoint.endpoint.stream("orders").consumers.register, "c")
        start = {"ConsumerARN": consumer.arn, "ShardId": SHARD, "StartingPosition": {"Type": "LATEST"}}
        events = kinesis.subscribe_to_shard(**start)["EventStream"]
        began = time.monotonic()
    assert (
        time.monotonic() - began < 30
    )  # by default the server would wait a minute for them, and they last five minutes
    events.close()
    kinesis.close()


@pytest.fixture
def endpoint():
    with serve_in_thread(streams={"orders": 2}) as served:
        yield served


def read(endpoint):
    properties = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
    return [record.data for record in rp.consume("orders", properties, stop_at_tip=True)]


def test_the_children_of_a_split_are_read_after_their_parent(endpoint):
    orders = endpoint.stream("orders")
    orders.put(b"before", key="a")
    children = orders.split(FIRST), orders.split(SECOND)
    orders.put(b"after", key="a")

    assert read(endpoint) == [b"before", b"after"]
    assert children == (
        ("shardId-000000000002", "shardId-000000000003"),
        ("shardId-000000000004", "shardId-000000000005"),
    )


def test_two_shards_become_one(endpoint):
    orders = endpoint.stream("orders")
    assert orders.merge(FIRST, SECOND) == "shardId-000000000002"
    with pytest.raises(ApiError):
        orders.split(FIRST)


def test_a_key_may_be_a_number(endpoint):
    endpoint.stream("orders").put(b"1", key=5)
    assert read(endpoint) == [b"1"]
