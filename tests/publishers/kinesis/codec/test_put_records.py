"""PutRecords through the SDK with a body and an answer of our own."""

import json

import pytest

from recordpublisher.publishers.errors import KinesisError, StreamNotFoundError, ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult, StreamSummary

from servers.scripted_kinesis import refusal, stub_and_client

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
ANSWER = {
    "FailedRecordCount": 1,
    "EncryptionType": "KMS",
    "Records": [
        {"SequenceNumber": "49", "ShardId": "shardId-000000000000"},
        {"ErrorCode": "InternalFailure", "ErrorMessage": "sorry"},
    ],
}
ENTRIES = [PutEntry(b"\x00\xff", 'k"ö'), PutEntry(b"", "k", "17")]


async def test_the_body_is_what_the_service_documents():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", ANSWER)
        await client.put_records("orders", ENTRIES)
    assert stub.asked == [
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


async def test_the_arn_goes_into_the_call_when_it_is_known():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", ANSWER)
        await client.put_records(ARN, ENTRIES)
    assert stub.asked[0][1]["StreamARN"] == ARN


async def test_each_record_has_its_result():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", ANSWER)
        answer = await client.put_records("orders", ENTRIES)
    assert answer.failed == 1
    assert answer.results == [
        PutResult("shardId-000000000000"),
        PutResult(error_code="InternalFailure", error_message="sorry"),
    ]


async def test_a_body_above_a_mebibyte_is_sent_whole():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", {"FailedRecordCount": 0, "Records": [{"ShardId": "a"}]})
        await client.put_records("orders", [PutEntry(bytes(900_000), "k")])
    assert len(json.dumps(stub.asked[0][1])) > 1_200_000


async def test_a_call_that_is_refused_raises_the_translated_error():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", refusal("ProvisionedThroughputExceededException", "slow"))
        with pytest.raises(ThrottledError):
            await client.put_records("orders", ENTRIES)


async def test_a_stream_that_is_gone_is_named_with_those_that_are_there():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", refusal("ResourceNotFoundException", "gone"))
        stub.script("ListStreams", {"StreamNames": ["clicks"], "HasMoreStreams": False})
        with pytest.raises(StreamNotFoundError, match="clicks"):
            await client.put_records("orders", ENTRIES)


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ({}, StreamSummary(2**20, distributes_by_key=True)),
        (
            {"MaxRecordSizeInKiB": 10_240, "RecordDistributionStrategy": "AUTO"},
            StreamSummary(10 * 2**20, distributes_by_key=False),
        ),
    ],
)
async def test_what_the_summary_says_of_a_stream(said, facts):
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamARN": ARN, **said}})
        assert await client.stream_summary("orders") == facts


@pytest.mark.parametrize(
    "answer",
    [ANSWER, refusal("ProvisionedThroughputExceededException", "slow"), refusal("AccessDeniedException", "no")],
    ids=str,
)
@pytest.mark.parametrize("data", [b"small", bytes(900_000)], ids=len)
async def test_the_short_way_of_later_calls_asks_and_says_the_same(answer, data):
    said = []
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", ANSWER, answer)
        for _ in range(2):
            try:
                said.append(await client.put_records("orders", [PutEntry(data, "k"), PutEntry(b"", "k")]))
            except KinesisError as error:
                said.append((type(error), error.code))
    first, second = stub.asked
    assert first == second
    assert "amz-sdk-invocation-id" not in {name.lower() for name in stub.headers[1]}
    assert (said[1] == said[0]) == (answer is ANSWER)


async def test_an_answer_without_a_result_for_each_record_is_tried_again():
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", {"FailedRecordCount": 0})
        with pytest.raises(TransientError, match="0 results for 2 records"):
            await client.put_records("orders", ENTRIES)
