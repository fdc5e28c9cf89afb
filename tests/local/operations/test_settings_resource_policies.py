import pytest

from recordpublisher.local.errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
POLICY = '{"Version":"2012-10-17","Statement":[]}'


@pytest.fixture(params=["stream", "consumer"])
def resource(call, request):
    call("CreateStream", StreamName="orders", ShardCount=1)
    consumer = call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]["ConsumerARN"]
    return ARN if request.param == "stream" else consumer


def test_a_policy_is_stored_until_it_is_deleted(call, resource):
    call("PutResourcePolicy", ResourceARN=resource, Policy=POLICY)
    assert call("GetResourcePolicy", ResourceARN=resource) == {"Policy": POLICY}
    call("DeleteResourcePolicy", ResourceARN=resource)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        call("DeleteResourcePolicy", ResourceARN=resource)


def test_without_a_policy_an_empty_one_is_shown(call, resource):
    assert call("GetResourcePolicy", ResourceARN=resource) == {"Policy": "{}"}


@pytest.mark.parametrize("policy", ["no JSON", "[]", ""])
def test_a_policy_is_a_json_object(call, resource, policy):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("PutResourcePolicy", ResourceARN=resource, Policy=policy)
