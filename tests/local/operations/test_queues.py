"""Queues are created, described, changed and deleted; a stream that has one stays as it is."""

import pytest

from recordpublisher.local import Delays
from recordpublisher.local.account import Account
from recordpublisher.local.errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
LATEST = [{"StreamARN": ARN}]


@pytest.fixture(autouse=True)
def orders(call) -> None:
    call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})


def create(call, name="q", **fields):
    return call("CreateQueue", QueueName=name, **{"StreamConfigurationList": LATEST, **fields})["QueueDescription"]


def test_a_queue_has_the_documented_defaults(call):
    created = create(call)

    assert created["QueueARN"].startswith("arn:aws:kinesis:us-east-1:000000000000:queue/")
    assert created["QueueAttributes"] == {
        "VisibilityTimeoutSeconds": 30,
        "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
    }
    assert created["StreamConfigurationList"][0]["StartingPosition"]["Type"] == "LATEST"
    assert call("DescribeQueue", QueueARN=created["QueueARN"])["QueueDescription"] == created


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"StreamConfigurationList": LATEST * 2}, "InvalidArgumentException"),
        ({"StreamConfigurationList": [{"StreamARN": ARN + "x"}]}, "ResourceNotFoundException"),
        ({"QueueAttributes": {"DeadLetterConfiguration": {"TargetType": "BUILT_IN"}}}, "InvalidArgumentException"),
        ({"QueueAttributes": {"VisibilityTimeoutSeconds": 43_201}}, "ValidationException"),
        ({"StreamConfigurationList": [{"StreamARN": ARN, "StartingPosition": {"Type": "AT_TIMESTAMP"}}]}, "Validation"),
        (
            {"StreamConfigurationList": [{"StreamARN": ARN, "StartingPosition": {"Type": "LATEST", "Timestamp": 1}}]},
            "ValidationException",
        ),
    ],
)
def test_a_queue_that_cannot_be_is_refused(call, fields, code):
    with pytest.raises(ApiError, match=f"^{code}"):
        create(call, **fields)


def test_a_queue_needs_an_on_demand_stream_and_keeps_it_so(call):
    call("CreateStream", StreamName="provisioned")
    with pytest.raises(ApiError, match="need ON_DEMAND"):
        create(call, StreamConfigurationList=[{"StreamARN": ARN.replace("orders", "provisioned")}])
    create(call)
    with pytest.raises(ApiError, match=r"^ResourceInUseException"):
        call("UpdateStreamMode", StreamARN=ARN, StreamModeDetails={"StreamMode": "PROVISIONED"})


def test_a_name_is_taken_once(call):
    create(call)
    with pytest.raises(ApiError, match=r"^ResourceInUseException"):
        create(call)


def test_a_stream_with_a_queue_is_not_deleted(call):
    arn = create(call)["QueueARN"]
    with pytest.raises(ApiError, match=r"^ResourceInUseException"):
        call("DeleteStream", StreamARN=ARN, EnforceConsumerDeletion=True)
    call("DeleteQueue", QueueARN=arn)
    call("DeleteStream", StreamARN=ARN)


def test_queues_and_consumers_share_a_limit(call):
    for number in range(10):
        create(call, f"q{number}")
        call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=f"c{number}")
    with pytest.raises(ApiError, match=r"^LimitExceededException"):
        create(call, "one-more")
    with pytest.raises(ApiError, match=r"^LimitExceededException"):
        call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="one-more")


def test_queues_are_listed_by_name_page_by_page_and_by_stream(call):
    call("CreateStream", StreamName="other", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    for name in ("c", "a", "b"):
        create(call, name)
    create(call, "z", StreamConfigurationList=[{"StreamARN": ARN.replace("orders", "other")}])

    first = call("ListQueues", MaxResults=2, StreamFilter=[{"StreamARN": ARN}])
    second = call("ListQueues", NextToken=first["NextToken"], StreamFilter=[{"StreamARN": ARN}])
    listed = first["QueueSummaries"] + second["QueueSummaries"]
    assert [queue["QueueName"] for queue in listed] == ["a", "b", "c"]
    assert "NextToken" not in second


def test_a_token_expires(call, clock):
    create(call, "a")
    create(call, "b")
    token = call("ListQueues", MaxResults=1)["NextToken"]
    clock.advance(300_000)
    with pytest.raises(ApiError, match=r"^ExpiredNextTokenException"):
        call("ListQueues", NextToken=token)


def test_a_change_leaves_the_other_attribute(call):
    arn = create(call)["QueueARN"]
    changed = call("UpdateQueue", QueueARN=arn, QueueAttributes={"VisibilityTimeoutSeconds": 5})["QueueDescription"]
    assert changed["QueueAttributes"]["VisibilityTimeoutSeconds"] == 5
    assert changed["QueueAttributes"]["DeadLetterConfiguration"]["MaxReceiveCount"] == 6


def test_states_follow_the_clock(clock, call, account):
    account = Account(clock, "us-east-1", Delays(consumer=100), None)
    stream = account.create_stream("orders", 1)
    queue = account.queues.create("q", stream, {}, {}, 100)
    seen = []
    for status in ("", "UPDATING", "DELETING"):
        if status:
            queue.set_busy(status, clock.now_ms() + 100)
        seen.append(queue.status(clock.now_ms()))
        clock.advance(100)
        seen.append(queue.status(clock.now_ms()))
    assert seen == ["CREATING", "ACTIVE", "UPDATING", "ACTIVE", "DELETING", "DELETING"]
    assert account.queues.all() == []


def test_a_queue_has_tags_and_a_policy(call):
    arn = create(call, Tags={"team": "a"})["QueueARN"]
    call("TagResource", ResourceARN=arn, Tags={"stage": "test"})
    call("PutResourcePolicy", ResourceARN=arn, Policy='{"Version":"2012-10-17"}')
    assert [tag["Key"] for tag in call("ListTagsForResource", ResourceARN=arn)["Tags"]] == ["stage", "team"]
    assert call("GetResourcePolicy", ResourceARN=arn)["Policy"] == '{"Version":"2012-10-17"}'
