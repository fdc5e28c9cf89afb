"""Every API meets every trouble over real HTTP, and says of each whether a retry can help (F3, F4, R2, R4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from recordpublisher.publishers.errors import (
    ExpiredIteratorError,
    FatalKinesisError,
    KinesisError,
    Remedy,
    ResourceInUseError,
    ResourceNotFoundError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from servers.scripted_kinesis import drop_connection, never, raw, refusal, stub_and_client

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
CONSUMER = f"{ARN}/consumer/app:1700000000"
SHARD = Shard("orders", "shardId-000000000000")
START = StartingPosition.trim_horizon()

APIS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "get_shard_iterator": ("GetShardIterator", lambda client: client.get_shard_iterator(SHARD, START)),
    "get_records": ("GetRecords", lambda client: client.get_records(SHARD, "it", 1)),
    "subscribe_to_shard": ("SubscribeToShard", lambda client: client.subscribe_to_shard(CONSUMER, SHARD, START)),
    "describe_consumer": ("DescribeStreamConsumer", lambda client: client.describe_consumer(ARN, "app")),
    "register_consumer": ("RegisterStreamConsumer", lambda client: client.register_consumer(ARN, "app")),
    "deregister_consumer": ("DeregisterStreamConsumer", lambda client: client.deregister_consumer(CONSUMER)),
    "stream_arn": ("DescribeStreamSummary", lambda client: client.stream_arn("orders")),
    "record_distribution": ("DescribeStreamSummary", lambda client: client.record_distribution("orders")),
    "retention_ms": ("DescribeStreamSummary", lambda client: client.retention_ms("orders")),
    "list_shards": ("ListShards", lambda client: client.list_shards("orders")),
    "server_time_ms": ("ListShards", lambda client: client.server_time_ms("orders")),
    "list_streams": ("ListStreams", lambda client: client.list_streams()),
}
OF_STREAMS = {"stream_arn", "record_distribution", "retention_ms", "list_shards", "server_time_ms"}
PAGE = b"<html><body>503 Service Unavailable</body></html>"


async def half_and_lost(request: web.Request) -> web.StreamResponse:
    """Half of what Content-Length says, then the connection breaks."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"Records":[')
    request.transport.abort()
    return response


TROUBLES: dict[str, tuple[Any, type[KinesisError], Remedy]] = {
    **{
        code: (refusal(code, "slow down"), ThrottledError, Remedy.RETRY)
        for code in (
            "ProvisionedThroughputExceededException",
            "LimitExceededException",
            "KMSThrottlingException",
            "ThrottlingException",
            "RequestLimitExceeded",
        )
    },
    "status 429": (refusal("Unheard", status=429), ThrottledError, Remedy.RETRY),
    "InternalFailure": (refusal("InternalFailure", status=500), TransientError, Remedy.RETRY),
    "InternalFailureException with status 400": (refusal("InternalFailureException"), TransientError, Remedy.RETRY),
    "ServiceUnavailable": (refusal("ServiceUnavailable", status=503), TransientError, Remedy.RETRY),
    "an unheard code with status 500": (refusal("Unheard", status=500), TransientError, Remedy.RETRY),
    "a proxy's page": (raw(PAGE, 503), TransientError, Remedy.RETRY),
    "a proxy's text as JSON": (raw(b'"bad gateway"', 502), TransientError, Remedy.RETRY),
    "an empty response with status 502": (raw(b"", 502), TransientError, Remedy.RETRY),
    "a connection that breaks": (drop_connection, TransientError, Remedy.RETRY),
    "an response that breaks off": (half_and_lost, TransientError, Remedy.RETRY),
    "ExpiredIteratorException": (refusal("ExpiredIteratorException"), ExpiredIteratorError, Remedy.REFRESH),
    "ResourceInUseException": (refusal("ResourceInUseException"), ResourceInUseError, Remedy.WAIT),
    **{
        code: (refusal(code, "no"), FatalKinesisError, Remedy.ACT)
        for code in (
            "AccessDeniedException",
            "ExpiredTokenException",
            "UnrecognizedClientException",
            "InvalidSignatureException",
            "KMSAccessDeniedException",
            "KMSDisabledException",
            "KMSInvalidStateException",
            "KMSNotFoundException",
            "KMSOptInRequired",
            "InvalidArgumentException",
        )
    },
    "an unheard code": (refusal("Unheard"), FatalKinesisError, Remedy.ACT),
}
BROKEN_BODIES = {
    "half an response, well ended": b'{"Records":[{"Da',
    "nothing, well ended": b"",
    "a page with status 200": PAGE,
    "JSON of another kind": b'["Records"]',
    "text as JSON": b'"Records"',
    "an response without what it must have": b'{"message":"try later"}',
    "null where something must be": b'{"Records":null,"Shards":null,"StreamDescriptionSummary":null,"ShardIterator":null,'
    b'"Consumer":null,"ConsumerDescription":null,"StreamNames":null}',
}
WITHOUT_CONTENT = {"deregister_consumer", "subscribe_to_shard"}
"""Whose response to the call says nothing; the events of a subscription are told of in test_subscription.py."""


async def met(api: str, responses: dict[str, Any]) -> dict[str, BaseException | None]:
    """What a call raises for each of these responses."""
    operation, call = APIS[api]
    raised: dict[str, BaseException | None] = {}
    async with stub_and_client() as (stub, client):
        for name, response in responses.items():
            stub.script(operation, response)
            try:
                await call(client)
                raised[name] = None
            except Exception as error:
                raised[name] = error
    return raised


@pytest.mark.parametrize("api", APIS)
async def test_every_error_is_of_its_class(api: str):
    raised = await met(api, {name: response for name, (response, _, _) in TROUBLES.items()})
    for name, error in raised.items():
        _, kind, remedy = TROUBLES[name]
        if api == "subscribe_to_shard" and name == "an response that breaks off":
            assert error is None  # the call was answered; the events break
            continue
        assert type(error) is kind, f"{name}: {error!r}"
        assert isinstance(error, KinesisError)
        assert (error.api, error.remedy) == (APIS[api][0], remedy)


@pytest.mark.parametrize("api", sorted(APIS.keys() - {"subscribe_to_shard"}))  # there the caller sets the deadline
async def test_no_answer_in_time_is_tried_again(api: str):
    operation, call = APIS[api]
    async with stub_and_client(aws_request_timeout="300") as (stub, client):
        stub.script(operation, never)
        with pytest.raises(TransientError, match="no response in time"):
            await call(client)


@pytest.mark.parametrize("api", sorted(APIS.keys() - WITHOUT_CONTENT))
async def test_a_broken_body_is_tried_again_and_never_taken_for_an_answer(api: str):
    raised = await met(api, {name: raw(body) for name, body in BROKEN_BODIES.items()})
    if api == "server_time_ms":  # the Date of the response is all it takes
        raised = {name: error for name, error in raised.items() if error is not None}
    for name, error in raised.items():
        assert type(error) is TransientError, f"{name}: {error!r}"
        assert error.api == APIS[api][0]


@pytest.mark.parametrize("api", sorted(APIS.keys() - {"list_streams"}))
async def test_what_is_not_found_is_left_to_who_knows_what_it_may_be(api: str):
    raised = (await met(api, {"gone": refusal("ResourceNotFoundException", "no")}))["gone"]
    if api == "describe_consumer":
        assert raised is None
    elif api in OF_STREAMS:
        assert type(raised) is StreamNotFoundError
    else:
        assert type(raised) is ResourceNotFoundError
        assert raised.remedy is Remedy.DIAGNOSE
