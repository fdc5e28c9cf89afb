"""Every API with every kind of failure over real HTTP: each raises the error class that says whether a retry can help (F3, F4, R2, R4)."""

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


FAILURES: dict[str, tuple[Any, type[KinesisError], Remedy]] = {
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
    "status 429": (refusal("UnknownCode", status=429), ThrottledError, Remedy.RETRY),
    "InternalFailure": (refusal("InternalFailure", status=500), TransientError, Remedy.RETRY),
    "InternalFailureException with status 400": (refusal("InternalFailureException"), TransientError, Remedy.RETRY),
    "ServiceUnavailable": (refusal("ServiceUnavailable", status=503), TransientError, Remedy.RETRY),
    "an unknown code with status 500": (refusal("UnknownCode", status=500), TransientError, Remedy.RETRY),
    "a proxy's page": (raw(PAGE, 503), TransientError, Remedy.RETRY),
    "a proxy's text as JSON": (raw(b'"bad gateway"', 502), TransientError, Remedy.RETRY),
    "an empty response with status 502": (raw(b"", 502), TransientError, Remedy.RETRY),
    "a lost connection": (drop_connection, TransientError, Remedy.RETRY),
    "a response that breaks off": (half_and_lost, TransientError, Remedy.RETRY),
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
    "an unknown code": (refusal("UnknownCode"), FatalKinesisError, Remedy.ACT),
}
BROKEN_BODIES = {
    "half a response that ends cleanly": b'{"Records":[{"Da',
    "an empty response that ends cleanly": b"",
    "a page with status 200": PAGE,
    "JSON of another kind": b'["Records"]',
    "text as JSON": b'"Records"',
    "a response without its required fields": b'{"message":"try later"}',
    "null in required fields": b'{"Records":null,"Shards":null,"StreamDescriptionSummary":null,"ShardIterator":null,'
    b'"Consumer":null,"ConsumerDescription":null,"StreamNames":null}',
}
WITHOUT_CONTENT = {"deregister_consumer", "subscribe_to_shard"}
"""Calls whose response has no body to decode. For the events of a subscription see test_event_subscription.py."""


async def errors_for(api: str, responses: dict[str, Any]) -> dict[str, BaseException | None]:
    """The error that a call raises for each of these responses; None without one."""
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
async def test_every_failure_raises_its_error_class(api: str):
    raised = await errors_for(api, {name: response for name, (response, _, _) in FAILURES.items()})
    for name, error in raised.items():
        _, kind, remedy = FAILURES[name]
        if api == "subscribe_to_shard" and name == "a response that breaks off":
            assert error is None  # the call succeeds; the events break off
            continue
        assert type(error) is kind, f"{name}: {error!r}"
        assert isinstance(error, KinesisError)
        assert (error.api, error.remedy) == (APIS[api][0], remedy)


@pytest.mark.parametrize("api", sorted(APIS.keys() - {"subscribe_to_shard"}))  # there the caller sets the deadline
async def test_a_call_without_a_response_in_time_is_transient(api: str):
    operation, call = APIS[api]
    async with stub_and_client(aws_request_timeout="300ms") as (stub, client):
        stub.script(operation, never)
        with pytest.raises(TransientError, match=r"in time|[Tt]imeout"):  # a slow machine may not even connect in time
            await call(client)


@pytest.mark.parametrize("api", sorted(APIS.keys() - WITHOUT_CONTENT))
async def test_a_malformed_body_is_transient(api: str):
    raised = await errors_for(api, {name: raw(body) for name, body in BROKEN_BODIES.items()})
    if api == "server_time_ms":  # it reads only the Date header
        raised = {name: error for name, error in raised.items() if error is not None}
    for name, error in raised.items():
        assert type(error) is TransientError, f"{name}: {error!r}"
        assert error.api == APIS[api][0]


@pytest.mark.parametrize("api", sorted(APIS.keys() - {"list_streams"}))
async def test_not_found_is_a_missing_stream_only_where_the_call_names_just_the_stream(api: str):
    raised = (await errors_for(api, {"gone": refusal("ResourceNotFoundException", "no")}))["gone"]
    if api == "describe_consumer":
        assert raised is None
    elif api in OF_STREAMS:
        assert type(raised) is StreamNotFoundError
    else:
        assert type(raised) is ResourceNotFoundError
        assert raised.remedy is Remedy.DIAGNOSE
