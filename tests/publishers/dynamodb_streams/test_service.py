"""DynamoDB Streams as a service that polling reads: pages of shards, shard ends, the tip, trimmed changes."""

import pytest
from botocore.exceptions import ClientError

import recordpublisher as rp
from recordpublisher.publishers.dynamodb_streams.service import DynamoDbStreams


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
    service = DynamoDbStreams(
        rp.Properties(
            {"aws.region": "us-east-1", "aws.endpoint": "http://127.0.0.1:1", "flink.dynamodb.tip.empty.reads": 2}
        )
    )
    service._client = Answers(list_streams=[{"Streams": [{"StreamArn": "arn", "StreamLabel": "1"}]}], **answers)
    return service


def described(shard_id, parent=None, closed=False, last=None):
    numbers = {"StartingSequenceNumber": "1"} | ({"EndingSequenceNumber": "9"} if closed else {})
    shard = {"ShardId": shard_id, "SequenceNumberRange": numbers} | ({"ParentShardId": parent} if parent else {})
    return {"StreamDescription": {"Shards": [shard]} | ({"LastEvaluatedShardId": last} if last else {})}


async def test_shards_are_listed_page_by_page_with_parents_and_spread_over_subtasks():
    service = a_service(describe_stream=[described("a", closed=True, last="a"), described("b", "a")])

    parent, child = await service.list_shards("orders")

    assert (parent.closed, child.closed, child.parents) == (True, False, ("a",))
    assert parent.hash_range != child.hash_range
    assert service._client.asked[-1] == ("describe_stream", {"StreamArn": "arn", "ExclusiveStartShardId": "a"})


async def test_a_shard_end_has_no_iterator_and_the_tip_is_reported_after_some_empty_responses():
    more, end = {"Records": [], "NextShardIterator": "own"}, {"Records": []}
    service = a_service(get_shard_iterator=[{"ShardIterator": "own"}], get_records=[more, more, end])
    shard = rp.Shard("orders", "a")
    iterator = await service.get_shard_iterator(shard, rp.StartingPosition.trim_horizon())
    answers = []
    while iterator is not None:
        answers.append(await service.get_records(shard, iterator, 10_000))
        iterator = answers[-1].next_iterator

    assert [answer.millis_behind_latest for answer in answers] == [None, 0, 0]
    assert service._client.asked[-1][1] == {"ShardIterator": "own", "Limit": 1000}


async def test_trimmed_records_are_data_loss():
    trimmed = ClientError({"Error": {"Code": "TrimmedDataAccessException", "Message": "gone"}}, "GetShardIterator")
    service = a_service(get_shard_iterator=[trimmed])

    with pytest.raises(rp.DataLossError, match="24 hours"):
        await service.get_shard_iterator(rp.Shard("orders", "a"), rp.StartingPosition.after(rp.SequenceNumber("5")))
