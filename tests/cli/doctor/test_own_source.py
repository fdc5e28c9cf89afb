"""What `doctor` says about the streams of a publisher that does not read Kinesis."""

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.job import source_with_checks_of, wrapper_of
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink

from fakes.archives import write_archive
from servers.moto_server import KEYS, serve_moto

TABLE = "orders-of-doctor"
"""moto keeps its tables for the process, whichever server made them."""


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


async def found(moto, table, publisher="DYNAMODB_STREAMS"):
    """The verdict and words of each check by its name."""
    given = {"aws.endpoint": moto, "aws.region": "us-east-1", "flink.stream.recordpublisher": publisher, **KEYS}
    own = source_with_checks_of(load_registry(), rp.Properties(given))
    if own is None:
        return None
    findings = await own.findings(table)
    await own.close()
    return {each.name.removeprefix(f"{table}: "): (each.verdict.value, each.words) for each in findings}


async def test_each_action_on_a_table_is_tried(moto):
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

    checked = await found(moto, TABLE)
    actions = ("ListStreams", "DescribeStream", "GetShardIterator", "GetRecords")
    assert list(checked) == [
        "dynamodb:ListStreams",
        "clock",
        *(f"dynamodb:{action}" for action in actions[1:]),
        "shards",
    ]
    assert {verdict for verdict, _ in checked.values()} == {"ok"}


async def test_a_table_without_a_stream_is_a_problem(moto):
    checked = await found(moto, "none")

    verdict, words = checked["dynamodb:ListStreams"]
    assert verdict == "PROBLEM"
    assert "none" in words
    assert checked["dynamodb:GetRecords"][0] == "not checked"


async def test_calls_go_to_the_endpoint_of_dynamodb_streams():
    given = {"aws.region": "eu-west-1", "flink.stream.recordpublisher": "DYNAMODB_STREAMS", **KEYS}
    own = source_with_checks_of(load_registry(), rp.Properties(given))

    assert await own.endpoint_url() == "https://streams.dynamodb.eu-west-1.amazonaws.com"
    await own.close()


async def test_streams_of_kinesis_are_left_to_their_own_checks(moto):
    assert await found(moto, "orders", "POLLING") is None
    assert await found(moto, "orders", "EFO") is None


@pytest.mark.parametrize("named", ["orders", "arn:aws:kinesis:us-east-1:000000000000:stream/orders"])
async def test_an_archive_is_compared_with_the_stream(tmp_path, named):
    await write_archive(tmp_path, JsonlSink, (5,), is_ended=False)
    with serve_in_thread(streams={"orders": 1}) as served:
        archive = {"flink.stream.recordpublisher": "ARCHIVE", "flink.archive.uri": str(tmp_path)}
        wrapper = wrapper_of(load_registry(), rp.Properties({**served.properties(), **archive}))
        (finding,) = await wrapper.findings(named)
        await wrapper.close()

    assert (finding.name, finding.verdict.value) == (f"{named}: archive", "PROBLEM")
    assert finding.words.endswith("ends after 123 without the shard's end, and the stream no longer has the shard")
