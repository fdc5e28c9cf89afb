"""PutRecords through the SDK, with our encoding of the body and decoding of the response."""

import json

import pytest

from recordpublisher.publishers.errors import KinesisError, StreamNotFoundError, ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult, StreamSummary

from servers.scripted_kinesis import refusal, stub_and_client

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
RESPONSE = {
    "FailedRecordCount": 1,
    "EncryptionType": "KMS",
    "Records": [
        {"SequenceNumber": "49", "ShardId": "shardId-000000000000"},
        {"ErrorCode": "InternalFailure", "ErrorMessage": "sorry"},
    ],
}
ENTRIES = [PutEntry(b"\x00\xff", 'k"ö'), PutEntry(b"", "k", "17")]


async def test_the_body_is_as_documented():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", RESPONSE)
        await client.put_records("orders", ENTRIES)
    assert stub.requests == [
        (
            "PutRecords",
            {
                "StreamName": "orders",
                "Records": [
                    {"Data": "AP8=", "PartitionKey": 'k"ö'},
                    {"Data": "", "PartitionKey": "k", "ExplicitHashKey": "17"},
                ],
            },
        )
    ]


async def test_a_known_arn_is_sent():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", RESPONSE)
        await client.put_records(ARN, ENTRIES)
    assert stub.requests[0][1]["StreamARN"] == ARN


async def test_each_record_has_its_result():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", RESPONSE)
        response = await client.put_records("orders", ENTRIES)
    assert response.failed == 1
    assert response.results == [
        PutResult("shardId-000000000000"),
        PutResult(error_code="InternalFailure", error_message="sorry"),
    ]


async def test_a_body_above_a_mebibyte_is_sent_whole():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", {"FailedRecordCount": 0, "Records": [{"ShardId": "a"}]})
        await client.put_records("orders", [PutEntry(bytes(900_000), "k")])
    assert len(json.dumps(stub.requests[0][1])) > 1_200_000


async def test_a_refused_call_raises_the_translated_error():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", refusal("ProvisionedThroughputExceededException", "slow"))
        with pytest.raises(ThrottledError):
            await client.put_records("orders", ENTRIES)


async def test_the_error_for_a_missing_stream_lists_the_existing_ones():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", refusal("ResourceNotFoundException", "gone"))
        stub.script("ListStreams", {"StreamNames": ["clicks"], "HasMoreStreams": False})
        with pytest.raises(StreamNotFoundError, match="clicks"):
            await client.put_records("orders", ENTRIES)


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({}, StreamSummary(2**20, distributes_by_key=True)),
        (
            {"MaxRecordSizeInKiB": 10_240, "RecordDistributionStrategy": "AUTO"},
            StreamSummary(10 * 2**20, distributes_by_key=False),
        ),
    ],
)
async def test_the_stream_summary_is_parsed(described, expected):
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamARN": ARN, **described}})
        assert await client.stream_summary("orders") == expected


@pytest.mark.parametrize(
    "response",
    [RESPONSE, refusal("ProvisionedThroughputExceededException", "slow"), refusal("AccessDeniedException", "no")],
    ids=["taken", "throttled", "denied"],
)
@pytest.mark.parametrize("data", [b"small", bytes(900_000)], ids=len)
async def test_the_fast_path_of_later_calls_sends_and_returns_the_same(response, data):
    results = []
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", RESPONSE, response)
        for _ in range(2):
            try:
                results.append(await client.put_records("orders", [PutEntry(data, "k"), PutEntry(b"", "k")]))
            except KinesisError as error:
                results.append((type(error), error.code))
    first, second = stub.requests
    assert first == second
    assert "amz-sdk-invocation-id" not in {name.lower() for name in stub.headers[1]}
    assert (results[1] == results[0]) == (response is RESPONSE)


async def test_a_response_without_a_result_for_each_record_is_transient():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", {"FailedRecordCount": 0})
        with pytest.raises(TransientError, match="0 results for 2 records"):
            await client.put_records("orders", ENTRIES)
