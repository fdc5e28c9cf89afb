"""DynamoDB Streams as a service that polling reads: pages of shards, shard ends, the tip, trimmed changes."""

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

import recordpublisher as rp
from recordpublisher.publishers.dynamodb_streams import EMPTY_READS_AT_TIP, DynamoDbStreams
from recordpublisher.publishers.errors import TransientError


class Answers:
    """A fake SDK client that returns the given responses in order."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def __getattr__(self, call):
        async def answer(**fields):
            self.asked.append((call, fields))
            told = self.answers[call].pop(0)
            if isinstance(told, Exception):
                raise told
            return told

        return answer


def a_service(**answers):
    """A service, and its client."""
    client = Answers(list_streams=[{"Streams": [{"StreamArn": "arn", "StreamLabel": "1"}]}], **answers)
    properties = rp.Properties({"aws.region": "us-east-1"})
    return DynamoDbStreams(properties, open_client=lambda: nullcontext(client)), client


def described(shard_id, parent=None, closed=False, last=None):
    numbers = {"StartingSequenceNumber": "1"} | ({"EndingSequenceNumber": "9"} if closed else {})
    shard = {"ShardId": shard_id, "SequenceNumberRange": numbers} | ({"ParentShardId": parent} if parent else {})
    return {"StreamDescription": {"Shards": [shard]} | ({"LastEvaluatedShardId": last} if last else {})}


async def test_shards_are_listed_page_by_page_with_parents_and_spread_over_workers():
    service, client = a_service(describe_stream=[described("a", closed=True, last="a"), described("b", "a")])

    parent, child = await service.list_shards("orders")

    assert (parent.closed, child.closed, child.parents) == (True, False, ("a",))
    assert parent.hash_range != child.hash_range
    assert client.asked[-1] == ("describe_stream", {"StreamArn": "arn", "ExclusiveStartShardId": "a"})


async def test_memory_does_not_grow_with_the_shards_that_have_expired():
    """The shards of a table are replaced every four hours."""
    generations = [described(f"shard-{number}") for number in range(50)]
    service, _ = a_service(describe_stream=generations)
    for _ in range(50):
        (newest,) = await service.list_shards("orders")

    assert newest.shard_id == "shard-49"
    assert len(service._arn_of) == 1


async def test_a_shard_end_has_no_iterator_and_the_tip_is_reported_after_some_empty_responses():
    more, end = {"Records": [], "NextShardIterator": "own"}, {"Records": []}
    service, client = a_service(
        get_shard_iterator=[{"ShardIterator": "own"}], get_records=[*[more] * EMPTY_READS_AT_TIP, end]
    )
    shard = rp.Shard("orders", "a")
    iterator = await service.get_shard_iterator(shard, rp.StartingPosition.trim_horizon())
    answers = []
    while iterator is not None:
        answers.append(await service.get_records(shard, iterator, 10_000))
        iterator = answers[-1].next_iterator

    assert [answer.millis_behind_latest for answer in answers] == [*[None] * (EMPTY_READS_AT_TIP - 1), 0, 0]
    assert client.asked[-1][1] == {"ShardIterator": "own", "Limit": 1000}


async def test_trimmed_records_are_data_loss():
    trimmed = ClientError({"Error": {"Code": "TrimmedDataAccessException", "Message": "gone"}}, "GetShardIterator")
    service, _ = a_service(get_shard_iterator=[trimmed])

    with pytest.raises(rp.DataLossError, match="24 hours"):
        await service.get_shard_iterator(rp.Shard("orders", "a"), rp.StartingPosition.after(rp.SequenceNumber("5")))


CHANGE = {
    "ApproximateCreationDateTime": datetime.fromtimestamp(1, UTC),
    "Keys": {"id": {"S": "a"}},
    "SequenceNumber": "1",
}
MALFORMED_READS = {
    "no records": {},
    "records that are null": {"Records": None},
    "a record that is null": {"Records": [None]},
    "a record without a change": {"Records": [{"eventID": "1"}]},
    "a change without keys": {"Records": [{"dynamodb": {**CHANGE, "Keys": None, "SequenceNumber": None}}]},
    "a change without a time": {"Records": [{"dynamodb": {**CHANGE, "ApproximateCreationDateTime": None}}]},
    "a text as sequence number": {"Records": [{"dynamodb": {**CHANGE, "SequenceNumber": "abc"}}]},
    "a sequence number without an end": {"Records": [{"dynamodb": {**CHANGE, "SequenceNumber": "9" * 5_000}}]},
    "a number as iterator": {"Records": [], "NextShardIterator": 5},
    "a time that the SDK refuses": RuntimeError('Unable to calculate correct timezone offset for "1e+300"'),
}


@pytest.mark.parametrize("response", MALFORMED_READS.values(), ids=MALFORMED_READS)
async def test_a_read_that_is_not_as_documented_may_be_tried_again(response):
    service, _ = a_service(get_records=[response])
    with pytest.raises(TransientError, match="GetRecords failed with MalformedResponse"):
        await service.get_records(rp.Shard("orders", "a"), "0 0 own", 10)


@pytest.mark.parametrize(
    "page", [{}, {"StreamDescription": {}}, {"StreamDescription": {"Shards": [{}]}}, described("a", parent="a")]
)
async def test_a_listing_that_is_not_as_documented_may_be_tried_again(page):
    service, _ = a_service(describe_stream=[page])
    with pytest.raises(TransientError, match="DescribeStream failed with MalformedResponse"):
        await service.list_shards("orders")


async def test_a_listing_that_never_ends_is_an_error():
    service, _ = a_service(describe_stream=[described("a", last="a")] * 3)
    with pytest.raises(TransientError, match="returns the same page again and again"):
        await service.list_shards("orders")


class TableWithStreams:
    """A table whose stream was disabled and enabled again, as another one. The newest is enabled. `gone`: no longer described."""

    is_disabled = False

    def __init__(self):
        self.arns, self.gone, self.asked = ["arn-1"], set(), []

    async def list_streams(self, **fields):
        return {"Streams": [{"StreamLabel": f"2026-01-0{n}", "StreamArn": arn} for n, arn in enumerate(self.arns, 1)]}

    async def describe_stream(self, StreamArn, **fields):  # noqa: N803
        if StreamArn in self.gone:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "DescribeStream")
        is_newest = StreamArn == self.arns[-1] and not self.is_disabled
        described_shard = described(f"shard-of-{StreamArn}", closed=not is_newest)
        described_shard["StreamDescription"]["StreamStatus"] = "ENABLED" if is_newest else "DISABLED"
        return described_shard

    async def get_shard_iterator(self, **fields):
        self.asked.append((fields["StreamArn"], fields["ShardId"]))
        return {"ShardIterator": "own"}


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_stream_that_was_disabled_and_enabled_again_is_found_and_the_former_is_read_to_its_end(is_gone):
    table = TableWithStreams()
    service = DynamoDbStreams(rp.Properties({"aws.region": "us-east-1"}), open_client=lambda: nullcontext(table))
    await service.list_shards("orders")
    table.arns.append("arn-2")
    table.gone = {"arn-1"} if is_gone else set()

    for _ in range(2):
        listed = await service.list_shards("orders")
    for shard in listed:
        await service.get_shard_iterator(shard, rp.StartingPosition.trim_horizon())

    former = [] if is_gone else [("arn-1", "shard-of-arn-1")]
    assert sorted(table.asked) == [*former, ("arn-2", "shard-of-arn-2")]


async def test_a_disabled_stream_is_told_once_and_an_enabled_one_is_not(caplog):
    table = TableWithStreams()
    service = DynamoDbStreams(rp.Properties({"aws.region": "us-east-1"}), open_client=lambda: nullcontext(table))
    await service.list_shards("orders")
    assert not caplog.messages

    table.is_disabled = True
    for _ in range(2):
        await service.list_shards("orders")
    table.is_disabled, table.arns = False, ["arn-1", "arn-2"]
    for _ in range(2):
        await service.list_shards("orders")

    (told,) = caplog.messages
    assert told.startswith("the stream of table orders is disabled")


async def test_a_job_that_is_started_again_still_finds_the_former_stream():
    """Otherwise its positions there were taken for expired, and changes were lost that the service still has."""
    table = TableWithStreams()
    table.arns.append("arn-2")
    service = DynamoDbStreams(rp.Properties({"aws.region": "us-east-1"}), open_client=lambda: nullcontext(table))

    listed = await service.list_shards("orders")
    for shard in listed:
        await service.get_shard_iterator(shard, rp.StartingPosition.trim_horizon())

    assert table.asked == [("arn-1", "shard-of-arn-1"), ("arn-2", "shard-of-arn-2")]


async def test_a_table_whose_stream_is_gone_is_not_found():
    table = TableWithStreams()
    service = DynamoDbStreams(rp.Properties({"aws.region": "us-east-1"}), open_client=lambda: nullcontext(table))
    await service.list_shards("orders")
    table.gone, table.arns = {"arn-1"}, []

    with pytest.raises(rp.StreamNotFoundError):
        await service.list_shards("orders")


def a_change(number, at_seconds):
    at = datetime.fromtimestamp(at_seconds, UTC)
    return {"dynamodb": {**CHANGE, "ApproximateCreationDateTime": at, "SequenceNumber": str(number)}}


async def test_after_the_first_change_of_a_start_by_time_no_change_is_skipped_although_its_time_is_older():
    """A restart continues after a sequence number and skips nothing, so a running job must not skip anything either."""
    service, _ = a_service(
        get_shard_iterator=[{"ShardIterator": "own"}],
        get_records=[
            {"Records": [a_change(1, 999)], "NextShardIterator": "own"},
            {"Records": [a_change(2, 999), a_change(3, 1_000), a_change(4, 999)], "NextShardIterator": "own"},
            {"Records": [a_change(5, 999)]},
        ],
    )
    shard, found = rp.Shard("orders", "a"), []
    iterator = await service.get_shard_iterator(shard, rp.StartingPosition.at_timestamp(1_000_000))
    while iterator is not None:
        response = await service.get_records(shard, iterator, 10)
        found += [record.sequence_number for record in response.records]
        iterator = response.next_iterator

    assert found == ["3", "4", "5"]
