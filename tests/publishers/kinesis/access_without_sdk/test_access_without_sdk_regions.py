"""In every region of every partition that the SDK knows, a call goes where the SDK sends it, or is left to the SDK."""

from functools import cache
from typing import Any

import pytest
from botocore.endpoint_provider import EndpointProvider
from botocore.loaders import Loader

from recordpublisher.publishers.kinesis.access_without_sdk import AccessWithoutSdk
from recordpublisher.publishers.kinesis.credentials_without_sdk import Keys
from recordpublisher.publishers.kinesis.endpoints import HOST_KINDS, PARTITIONS

LEFT_TO_THE_SDK = {"aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f"}
PARTITION_OF = {
    region: partition["id"]
    for partition in Loader().load_data("partitions")["partitions"]
    for region in partition["regions"]
    if not region.endswith("-global")
}


@cache
def provider() -> EndpointProvider:
    loader = Loader()
    return EndpointProvider(loader.load_service_model("kinesis", "endpoint-rule-set-1"), loader.load_data("partitions"))


def url_of_the_sdk(region: str, **parameters: Any) -> str:
    return f"{provider().resolve_endpoint(Region=region, **parameters).url}/"


def known(region: str) -> AccessWithoutSdk:
    return AccessWithoutSdk(Keys("key", "secret"), region, None)


@pytest.mark.parametrize("api", HOST_KINDS)
@pytest.mark.parametrize("region", PARTITION_OF)
def test_a_call_goes_where_the_sdk_sends_it(region, api):
    partition = PARTITION_OF[region]
    own = f"arn:{partition}:kinesis:{region}:123456789012:stream/orders"
    found = [known(region).url_of(arn, api) for arn in (None, own)]

    if partition in LEFT_TO_THE_SDK:
        assert found == [None, None]
    else:
        by_arn = url_of_the_sdk(region, StreamARN=own, OperationType=HOST_KINDS[api])
        assert found == [url_of_the_sdk(region), by_arn]


@pytest.mark.parametrize("region", [*PARTITION_OF, "eu-mars-1", "us-gov-moon-2", "us-isoz-east-1", "xx-north-1"])
def test_an_arn_of_another_partition_or_account_id_is_sent_as_the_sdk_does_or_left_to_it(region):
    for partition in (*PARTITIONS, "aws-iso"):
        for place, account in ((region, "210987654321"), ("eu-west-1", "123456789012"), (region, "")):
            arn = f"arn:{partition}:kinesis:{place}:{account}:stream/orders"
            found = known(region).url_of(arn, "GetRecords")
            assert found in (None, sent_by_the_sdk(region, arn))


def sent_by_the_sdk(region: str, arn: str) -> str | None:
    try:
        return url_of_the_sdk(region, StreamARN=arn, OperationType="data")
    except Exception:
        return None
