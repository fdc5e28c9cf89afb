import pytest

from recordpublisher.local.errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture(autouse=True)
def orders(call):
    call("CreateStream", StreamName="orders", ShardCount=1, Tags={"team": "blue"})


def tags_of(call, arn=ARN):
    return {tag["Key"]: tag["Value"] for tag in call("ListTagsForResource", ResourceARN=arn)["Tags"]}


def test_tags_of_a_stream_are_added_and_removed(call):
    call("AddTagsToStream", StreamName="orders", Tags={"cost": "", "team": "red"})
    assert tags_of(call) == {"cost": "", "team": "red"}
    call("RemoveTagsFromStream", StreamARN=ARN, TagKeys=["cost", "never there"])
    call("UntagResource", ResourceARN=ARN, TagKeys=["team"])
    call("TagResource", ResourceARN=ARN, Tags={"stage": "test"})
    assert tags_of(call) == {"stage": "test"}


def test_tags_are_listed_by_key_page_by_page(call):
    call("AddTagsToStream", StreamName="orders", Tags={"a": "1", "b": "2"})
    first = call("ListTagsForStream", StreamName="orders", Limit=2)
    assert first == {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}], "HasMoreTags": True}
    second = call("ListTagsForStream", StreamName="orders", Limit=2, ExclusiveStartTagKey="b")
    assert second == {"Tags": [{"Key": "team", "Value": "blue"}], "HasMoreTags": False}


def test_a_consumer_has_its_own_tags(call):
    arn = call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c", Tags={"team": "green"})["Consumer"][
        "ConsumerARN"
    ]
    call("TagResource", ResourceARN=arn, Tags={"stage": "test"})
    assert tags_of(call, arn) == {"stage": "test", "team": "green"}
    assert tags_of(call) == {"team": "blue"}


@pytest.mark.parametrize("tags", [{"aws:team": "x"}, {str(number): "x" for number in range(50)}])
def test_reserved_keys_and_more_than_fifty_tags_are_refused_as_a_whole(call, tags):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("AddTagsToStream", StreamName="orders", Tags=tags)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c", Tags={"aws:x": "y"})
    assert tags_of(call) == {"team": "blue"}
    assert call("ListStreamConsumers", StreamARN=ARN)["Consumers"] == []


def test_a_resource_that_does_not_exist_has_no_tags(call):
    for arn in (ARN.replace("orders", "other"), f"{ARN}/consumer/c:1700000000"):
        with pytest.raises(ApiError, match="ResourceNotFoundException"):
            call("ListTagsForResource", ResourceARN=arn)


@pytest.mark.parametrize("text", ["a;b", "a\tb", "a\nb", "a,b", "a%b"])
def test_other_characters_are_refused_in_keys_and_values(call, text):
    """As kinesalite's tests recorded it from AWS."""
    wrong = [("AddTagsToStream", {"Tags": {text: "1"}}), ("AddTagsToStream", {"Tags": {"a": text}})]
    for operation, fields in (*wrong, ("RemoveTagsFromStream", {"TagKeys": [text]})):
        with pytest.raises(ApiError, match="Some tags contain invalid characters"):
            call(operation, StreamName="orders", **fields)


def test_letters_of_any_script_and_signs_are_allowed(call):
    tags = {"\u00fc/\u7edf \u0161": "a_b.c=d+e-f@g"}
    call("AddTagsToStream", StreamName="orders", Tags=tags)
    assert tags_of(call) == {"team": "blue"} | tags
