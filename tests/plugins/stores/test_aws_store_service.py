"""StoreService: which errors of S3 and DynamoDB a later retry may cure, and which actions the stores call."""

from __future__ import annotations

import inspect
import re
import ssl
from contextlib import asynccontextmanager

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError, SSLError

from recordpublisher import StateError, StoreUnavailableError
from recordpublisher.plugins.stores.aws_store_service import StoreService
from recordpublisher.plugins.stores.dynamodb_store import DynamoDbStore
from recordpublisher.plugins.stores.s3_store import S3Store
from recordpublisher.publishers import kinesis
from recordpublisher.publishers.properties.properties import Properties


def failing_service(error):
    """Its client raises the given error."""

    @asynccontextmanager
    async def fail():
        raise error
        yield

    return StoreService("dynamodb", "dynamodb://table/job", Properties({"aws.region": "eu-west-1"}), fail)


def response(code: str, status: int) -> ClientError:
    found = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(found, "GetItem")  # type: ignore[arg-type]


async def test_an_endpoint_that_speaks_no_tls_is_told_with_what_to_check():
    cause = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    cause.reason = "WRONG_VERSION_NUMBER"
    with pytest.raises(StateError, match="it speaks no TLS: check the endpoint") as caught:
        await failing_service(SSLError(endpoint_url="https://h", error=cause)).call("GetItem", dict)
    assert kinesis.speaks_no_tls(caught.value), "which ends the wait for the store"


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (response("SlowDown", 503), True),
        (response("ThrottlingException", 400), True),
        (response("", 500), True),
        (EndpointConnectionError(endpoint_url="http://x"), True),
        (ConnectionResetError("reset"), True),
        (TimeoutError(), True),
        (response("AccessDeniedException", 400), False),
        (response("ValidationException", 400), False),
        (response("NoSuchBucket", 404), False),
        (NoCredentialsError(), False),
        (ParamValidationError(report="a name"), False),
    ],
    ids=repr,
)
async def test_throttling_errors_of_the_service_and_the_network_are_told_apart(error, is_away):
    with pytest.raises(StateError, match="GetItem at dynamodb://table/job failed") as caught:
        await failing_service(error).call("GetItem", dict)
    assert isinstance(caught.value, StoreUnavailableError) is is_away


@pytest.mark.parametrize("store", [S3Store, DynamoDbStore])
def test_a_store_names_the_action_of_each_of_its_calls(store):
    called = set(re.findall(r"""(?:call|pages)\(\s*"(\w+)\"""", inspect.getsource(inspect.getmodule(store))))
    allowed = {name.partition(":")[2].replace("ListBucket", "ListObjectsV2") for name in store.actions}

    assert allowed == called
