"""DirectTransport makes the calls of most jobs by itself, and leaves the others to the SDK."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import botocore.auth
import pytest
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    KinesisError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.access_without_sdk import AccessWithoutSdk
from recordpublisher.publishers.kinesis.credentials_without_sdk import Keys
from recordpublisher.publishers.kinesis.direct_transport import DirectTransport, SignedPost
from recordpublisher.publishers.kinesis.endpoints import HOST_KINDS
from recordpublisher.publishers.kinesis.ports import ConsumerDescription, PutEntry
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.certificates import self_signed
from servers.event_frames import wire_record
from servers.scripted_kinesis import PROPERTIES, drop_connection, never, raw, refusal, stub_and_client

SHARD = Shard("orders", "shardId-000000000000")
KEYS = {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}
CONSUMER = {"ConsumerName": "c", "ConsumerARN": "a", "ConsumerStatus": "ACTIVE", "ConsumerCreationTimestamp": 1.5e9}
SUMMARY = {"RetentionPeriodHours": 24, "StreamCreationTimestamp": 1.5e9, "StreamARN": "arn"}


def is_of_the_sdk(headers):
    return "amz-sdk-invocation-id" in {name.lower() for name in headers}


async def test_the_calls_of_a_job_do_without_the_sdk():
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": [{"ShardId": SHARD.shard_id, "HashKeyRange": KEYS}]}, {"Shards": []})
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": SUMMARY})
        stub.script("DescribeStreamConsumer", {"ConsumerDescription": CONSUMER})
        stub.script("GetShardIterator", {"ShardIterator": "it"})
        stub.script("GetRecords", {"Records": []})
        stub.script("PutRecords", {"Records": [{"ShardId": SHARD.shard_id}]})

        assert [shard.shard_id for shard in await client.list_shards("orders")] == [SHARD.shard_id]
        assert await client.server_time_ms("orders") > 1.7e12
        assert await client.retention_ms("orders") == 86_400_000
        assert await client.describe_consumer("arn:aws:kinesis:us-east-1:1:stream/orders", "c") == ConsumerDescription(
            "c", "a", "ACTIVE"
        )
        assert await client.get_shard_iterator(SHARD, StartingPosition.trim_horizon()) == "it"
        assert (await client.get_records(SHARD, "it", 1)).records == []
        assert (await client.put_records("orders", [PutEntry(b"a", "k")])).failed == 0

    assert {name for name, _ in stub.requests} == set(HOST_KINDS)
    assert not any(map(is_of_the_sdk, stub.headers))


async def test_other_calls_go_through_the_sdk():
    async with stub_and_client() as (stub, client):
        stub.script("ListStreams", {"StreamNames": ["orders"], "HasMoreStreams": False})

        assert await client.list_streams() == ["orders"]
        assert is_of_the_sdk(stub.headers[0])


class Sdk:
    """The transport that is made when it is needed."""

    async def call(self, api, **parameters):
        return {"asked": api}

    async def call_with_body(self, api, body, **parameters):
        return {"asked": api, "body": body}

    async def close(self):
        self.is_closed = True


async def test_a_call_whose_host_is_not_known_goes_through_the_sdk():
    sdk, arn = Sdk(), "arn:aws-cn:kinesis:eu-west-1:123456789012:stream/orders"
    transport = DirectTransport(AccessWithoutSdk(Keys("a", "s"), "eu-west-1", None), Properties(), lambda: sdk)

    assert await transport.call("ListShards", StreamARN=arn) == {"asked": "ListShards"}
    assert await transport.call_with_body("PutRecords", b"b", StreamARN=arn) == {"asked": "PutRecords", "body": b"b"}
    await transport.close()
    assert sdk.is_closed


def test_a_file_of_trusted_cas_that_is_missing_is_an_error_at_once(monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere.pem")

    with pytest.raises(ConfigurationError, match="AWS_CA_BUNDLE"):
        DirectTransport(AccessWithoutSdk(Keys("a", "s"), "eu-west-1", None), Properties(), Sdk)


def test_a_file_of_trusted_cas_is_not_read_for_http(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text("not in PEM form")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))

    DirectTransport(AccessWithoutSdk(Keys("a", "s"), "eu-west-1", "http://127.0.0.1:1"), Properties(), Sdk)
    with pytest.raises(ConfigurationError, match="PEM"):
        DirectTransport(AccessWithoutSdk(Keys("a", "s"), "eu-west-1", "https://127.0.0.1:1"), Properties(), Sdk)


# Calls on the fast path return and raise the same as calls through the SDK.


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


DEEP = b"[" * 200_000


def child(hash_key):
    """A child shard whose hash keys end with this one."""
    keys = {"StartingHashKey": "0", "EndingHashKey": hash_key}
    return json.dumps({"ShardId": "shardId-000000000001", "ParentShards": [], "HashKeyRange": keys}).encode()


def through_the_sdk():
    """A client all of whose calls the SDK makes."""
    return stub_and_client(aws_http_client="SDK")


@asynccontextmanager
async def stub_and_warm_client(**properties):
    """A client whose next GetRecords takes the fast path, on the route of the SDK. The stub's first request is removed."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_RETRY_MODE", "standard")  # only the SDK knows this variable
        async with stub_and_client(**properties) as (stub, client):
            stub.script("GetRecords", {"Records": []})
            await client.get_records(SHARD, "warm", 1)
            stub.requests.clear(), stub.headers.clear(), stub.arrived.clear()
            yield stub, client


FAST = [stub_and_client, stub_and_warm_client]
"""Without the SDK, and with its routes and credentials."""


def web_page(text, content_type):
    async def response(request):
        return web.Response(text=text, content_type=content_type)

    return response


async def outcome_of(started, response):
    """The response of a call, or the type, code and message of its error."""
    async with started as (stub, client):
        stub.script("GetRecords", response)
        try:
            return await client.get_records(SHARD, "it", 7)
        except KinesisError as error:
            return type(error), error.code, str(error).replace(stub.url, "URL")


@pytest.mark.parametrize(
    "response",
    [
        {"Records": [wire_record(b"\x00x", "4", arrival=1.5)], "NextShardIterator": "n", "MillisBehindLatest": 5},
        {"Records": [], "MillisBehindLatest": 0},
        refusal("ExpiredIteratorException", "Iterator expired."),
        refusal("com.amazonaws.kinesis.v20131202#ProvisionedThroughputExceededException", "slow down"),
        refusal("AccessDeniedException", "not for you"),
        refusal("InternalFailure", "oh", 500),
        raw(b'{"Message": "refused by a gateway"}', 403),
        raw(b"a page in Latin-1: \xe9", 403),
        raw(b'{"message": "\xe9"}', 503),
        raw(b'{"Records": [{"Data": 5}]}'),
        raw(b'{"Records": [], "x": ' + DEEP),
        raw(b'{"Records": [], "ChildShards": [%s]}' % child("x")),
        raw(b""),
        drop_connection,
    ],
)
@pytest.mark.parametrize("started", FAST)
async def test_the_fast_path_and_the_sdk_have_the_same_outcome(started, response):
    assert await outcome_of(started(), response) == await outcome_of(through_the_sdk(), response)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
async def test_a_large_response_is_the_same_on_the_fast_path_and_through_the_sdk(separators):
    records = [wire_record(bytes(n % 300), str(n), arrival=n + 0.5) for n in range(10_000)]
    body = {"NextShardIterator": "n", "Records": records, "MillisBehindLatest": 5, "ChildShards": []}
    response = raw(json.dumps(body, separators=separators).encode())
    fast, through_sdk = (
        await outcome_of(stub_and_client(), response),
        await outcome_of(through_the_sdk(), response),
    )
    assert fast == through_sdk
    assert len(fast.records) == 10_000


async def test_through_a_proxy_calls_go_through_the_sdk(monkeypatch):
    """The stub is also the proxy: it accepts requests for any host."""
    async with stub_and_client() as (stub, _):
        monkeypatch.setenv("HTTP_PROXY", stub.url)
        elsewhere = {**PROPERTIES, "aws.endpoint": "http://kinesis.invalid"}
        async with KinesisClient(Properties(elsewhere)) as client:
            stub.script("GetRecords", {"Records": []}, {"Records": []})
            for _ in range(2):
                await client.get_records(SHARD, "it", 1)
    assert all("amz-sdk-invocation-id" in {name.lower() for name in headers} for headers in stub.headers)


async def test_a_property_sends_every_call_through_the_sdk():
    async with stub_and_warm_client(aws_http_client="SDK") as (stub, client):
        stub.script("GetRecords", {"Records": []})
        await client.get_records(SHARD, "it", 1)
    assert "amz-sdk-invocation-id" in {name.lower() for name in stub.headers[0]}


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_the_tls_settings_are_those_of_the_sdk(is_trusted, tmp_path, monkeypatch):
    certificate = self_signed(tmp_path)
    if is_trusted:
        monkeypatch.setenv("AWS_CA_BUNDLE", certificate[0])
    async with stub_and_client(certificate=certificate) as (stub, client):
        stub.script("GetRecords", {"Records": []}, {"Records": []})
        if is_trusted:
            for _ in range(2):
                await client.get_records(SHARD, "it", 1)
            assert "amz-sdk-invocation-id" not in {name.lower() for name in stub.headers[1]}
        else:
            with pytest.raises(FatalKinesisError, match="ertificate"):
                await client.get_records(SHARD, "it", 1)


async def test_credentials_are_read_at_each_call():
    async with stub_and_warm_client() as (stub, client):
        stub.script("GetRecords", {"Records": []}, {"Records": []})
        for key in ("first", "renewed"):
            client._transports.for_stream(None)._session.set_credentials(key, "secret", "token of " + key)
            await client.get_records(SHARD, "it", 1)
    assert ["Credential=first/" in stub.headers[0]["Authorization"], stub.headers[1]["X-Amz-Security-Token"]] == [
        True,
        "token of renewed",
    ]


@pytest.mark.parametrize("body", [b"<html>Service Unavailable</html>", b'["no object"]', b""])
@pytest.mark.parametrize(("status", "kind"), [(503, TransientError), (400, FatalKinesisError), (429, ThrottledError)])
async def test_an_error_response_without_a_known_body_is_classified_by_its_status(body, status, kind):
    error = await outcome_of(stub_and_client(), raw(body, status))
    assert error[:2] == (kind, str(status))
    assert error == await outcome_of(through_the_sdk(), raw(body, status))


@pytest.mark.parametrize("status", [301, 403, 404, 405, 501])
@pytest.mark.parametrize("body", [b"<!DOCTYPE HTML>\n<p>not here", b'{"detail":"Not Found"}', b"no"])
async def test_an_error_of_another_web_server_is_fatal_and_names_the_endpoint(body, status):
    error = await outcome_of(stub_and_client(), raw(body, status))
    assert error[:2] == (FatalKinesisError, str(status))
    assert "this endpoint does not answer like Kinesis: check aws.endpoint (AWS_ENDPOINT_URL)" in error[2]
    assert "<" not in error[2]
    assert error == await outcome_of(through_the_sdk(), raw(body, status))


PAGES = [web_page("<p>hello", "text/html"), web_page('{"status":"ok"}', "application/json")]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("started", [stub_and_client, through_the_sdk])
async def test_an_endpoint_that_answers_200_but_never_like_kinesis_is_fatal_after_a_few_responses(started, page):
    async with started() as (stub, client):
        stub.script("DescribeStreamSummary", page, page, page)
        for _ in range(2):
            with pytest.raises(TransientError):
                await client.stream_summary("orders")
        with pytest.raises(FatalKinesisError, match=r"this endpoint does not answer like Kinesis: check aws\.endpoint"):
            await client.stream_summary("orders")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("started", [stub_and_client, through_the_sdk])
async def test_pages_of_a_proxy_are_retried_once_kinesis_has_answered(started, page):
    async with started() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": SUMMARY}, *[page] * 5)
        await client.stream_summary("orders")
        for _ in range(5):
            with pytest.raises(TransientError):
                await client.stream_summary("orders")


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_page_of_a_load_balancer_in_an_outage_is_retried(status):
    for started in (stub_and_client(), through_the_sdk()):
        error = await outcome_of(started, raw(b"<!DOCTYPE HTML>\n<p>unavailable", status))
        assert error[:2] == (TransientError, str(status))


async def test_the_service_gets_the_same_request():
    async with stub_and_warm_client() as (stub, client):
        stub.script("GetRecords", {"Records": []})
        await client.get_records(SHARD, "it", 500)
        (headers,) = stub.headers
    assert stub.requests == [("GetRecords", {"ShardIterator": "it", "Limit": 500})]
    assert headers["X-Amz-Target"] == "Kinesis_20131202.GetRecords"
    assert headers["Content-Type"] == "application/x-amz-json-1.1"
    assert "botocore" in headers["User-Agent"].lower()
    assert "verysecret" not in str(stub.headers)


async def test_an_arn_has_a_route_of_its_own():
    """The SDK may send calls that carry an ARN elsewhere, by its endpoint rules."""
    other = Shard("orders", SHARD.shard_id, stream_arn=ARN)
    async with stub_and_warm_client() as (stub, client):
        stub.script("GetRecords", {"Records": []}, {"Records": []})
        await client.get_records(other, "it", 1)
        await client.get_records(other, "it", 1)
    assert [parameters["StreamARN"] for _, parameters in stub.requests] == [ARN, ARN]
    assert "amz-sdk-invocation-id" in {name.lower() for name in stub.headers[0]}  # through the SDK
    assert "amz-sdk-invocation-id" not in {name.lower() for name in stub.headers[1]}


async def test_a_read_on_a_closed_idle_connection_costs_no_retry():
    async with stub_and_warm_client() as (stub, client):
        stub.script("GetRecords", {"Records": []}, drop_connection, {"Records": [], "NextShardIterator": "n"})
        await client.get_records(SHARD, "it", 1)
        assert (await client.get_records(SHARD, "it", 1)).next_iterator == "n"


async def test_a_write_is_not_repeated_automatically():
    """It may have arrived."""
    entries, put = [PutEntry(b"a", "k")], {"Records": [{"SequenceNumber": "1", "ShardId": SHARD.shard_id}]}
    async with stub_and_client() as (stub, client):
        stub.script("PutRecords", put, put, drop_connection, put)
        for _ in range(2):
            await client.put_records("orders", entries)
        with pytest.raises(TransientError):
            await client.put_records("orders", entries)
    assert len(stub.requests) == 3


async def test_a_call_without_a_response_in_time_is_transient():
    async with stub_and_warm_client() as (stub, client):
        client._transports.for_stream(None)._seconds = 0.2  # opening the client may take longer
        stub.script("GetRecords", never)
        with pytest.raises(KinesisError, match=r"in time|[Tt]imeout"):
            await client.get_records(SHARD, "it", 1)


async def test_r3_a_cancelled_call_ends_at_once_and_the_next_one_works():
    async with stub_and_warm_client() as (stub, client):
        stub.script("GetRecords", never, {"Records": [], "NextShardIterator": "n"})
        task = asyncio.ensure_future(client.get_records(SHARD, "it", 1))
        await stub.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.get_records(SHARD, "it", 1)).next_iterator == "n"


@pytest.mark.parametrize("token", [None, "a session token"])
async def test_an_endpoint_that_checks_signatures_accepts_the_request(token):
    with serve_in_thread(credentials={"me": "open sesame"}, streams={"orders": 1}) as endpoint:
        basic = "aws.credentials.provider.basic"
        given = {
            "aws.endpoint": endpoint.url,
            "aws.region": "us-east-1",
            f"{basic}.accesskeyid": "me",
            f"{basic}.secretkey": "open sesame",
            **({} if token is None else {f"{basic}.sessiontoken": token}),
        }
        async with KinesisClient(Properties(given)) as client:
            (shard,) = await client.list_shards("orders")
            iterator = await client.get_shard_iterator(shard, StartingPosition.trim_horizon())
            for _ in range(3):
                iterator = (await client.get_records(shard, iterator, 10)).next_iterator


@pytest.mark.parametrize(
    "position",
    [
        StartingPosition.trim_horizon(),
        StartingPosition.at_timestamp(1_700_000_000_123),
        StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, "7"),
    ],
    ids=lambda position: position.type.value,
)
@pytest.mark.parametrize(
    "response",
    [
        {"ShardIterator": "it"},
        {},
        {"ShardIterator": 5},
        raw(b""),
        raw(b"[]"),
        refusal("ResourceNotFoundException", "no"),
    ],
    ids=["an iterator", "none", "a number", "nothing", "a list", "an error"],
)
async def test_iterators_are_the_same_on_the_fast_path_and_through_the_sdk(position, response):
    results, requests = [], []
    for started in (*FAST, through_the_sdk):
        async with started() as (stub, client):
            stub.script("GetShardIterator", response, response)
            for _ in range(2):  # the second takes the route that the first has left
                try:
                    results.append(await client.get_shard_iterator(SHARD, position))
                except KinesisError as error:
                    results.append((type(error), error.code))
            requests += stub.requests
    assert results == results[:1] * 6
    assert requests == requests[:1] * 6


async def test_calls_that_started_with_the_first_do_not_disable_the_fast_path(monkeypatch):
    """Its route is known before the SDK has made its HTTP session."""
    monkeypatch.setenv("AWS_RETRY_MODE", "standard")
    async with stub_and_client() as (stub, client):
        stub.script("GetRecords", *[{"Records": []}] * 51)
        await asyncio.gather(*(client.get_records(SHARD, "it", 1) for _ in range(50)))
        await client.get_records(SHARD, "it", 1)
    assert "amz-sdk-invocation-id" not in {name.lower() for name in stub.headers[-1]}


@pytest.mark.parametrize("started", [*FAST, through_the_sdk])
@pytest.mark.parametrize("hash_key", ["x", "-5", "9" * 5_000, str(2**128)], ids=["text", "negative", "digits", "large"])
async def test_children_with_invalid_hash_keys_are_a_malformed_response(started, hash_key):
    kind, code, _ = await outcome_of(started(), raw(b'{"Records": [], "ChildShards": [%s]}' % child(hash_key)))
    assert (kind, code) == (TransientError, "MalformedResponse")


@pytest.mark.parametrize("started", [*FAST, through_the_sdk])
@pytest.mark.parametrize(
    ("status", "expected"), [(200, TransientError), (400, FatalKinesisError), (500, TransientError)]
)
async def test_deeply_nested_json_is_classified_by_its_status(started, status, expected):
    kind, _, _ = await outcome_of(started(), raw(b'{"x": ' + DEEP, status))
    assert kind is expected


# Our signature is the same as the SDK's.


HEADERS = {
    "User-Agent": "Botocore/1.43  aio",
    "X-Amz-Target": "Kinesis_20131202.GetRecords",
    "Content-Type": "application/x-amz-json-1.1",
}
NOW = 1_700_000_000.5
URLS = [
    "https://kinesis.eu-west-1.amazonaws.com/",
    "https://kinesis.eu-west-1.amazonaws.com:443",
    "http://127.0.0.1:4566/",
    "http://[::1]:4566/",
    "http://Localhost:80/a/../some%20path/~x",
]


def signed_by_the_sdk(url, credentials, body, monkeypatch, now=NOW):
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(now, tz=UTC))
    request = AWSRequest("POST", url, dict(HEADERS), body)
    SigV4Auth(credentials, "kinesis", "eu-west-1").add_auth(request)
    return request.prepare()


def head_of(request):
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("token", [None, "a+session/token=="])
@pytest.mark.parametrize("body", [b"{}", bytes(range(256)) * 1000], ids=len)
def test_the_request_is_signed_as_by_the_sdk(url, token, body, monkeypatch):
    credentials = ReadOnlyCredentials("AKID", "secret/+", token)
    theirs = signed_by_the_sdk(url, credentials, body, monkeypatch)
    first, ours, sent = head_of(SignedPost(url, HEADERS, "eu-west-1").build(body, credentials, NOW))
    expected = {name: value.decode() if isinstance(value, bytes) else value for name, value in theirs.headers.items()}
    assert {name: ours[name] for name in expected} == expected
    assert first.startswith("POST /")
    assert first.endswith(" HTTP/1.1")
    assert sent == body


def test_a_new_day_and_renewed_credentials_have_their_own_key(monkeypatch):
    post = SignedPost(URLS[0], HEADERS, "eu-west-1")
    for now, secret in ((NOW, "a"), (NOW, "b"), (NOW + 86_400, "b"), (NOW, "a")):
        credentials = ReadOnlyCredentials("AKID", secret, None)
        theirs = signed_by_the_sdk(URLS[0], credentials, b"{}", monkeypatch, now).headers["Authorization"]
        assert head_of(post.build(b"{}", credentials, now))[1]["Authorization"] == theirs


def test_the_host_is_sent_without_the_schemes_own_port():
    credentials = SimpleNamespace(access_key="a", secret_key="s", token=None)
    post = SignedPost("https://kinesis.eu-west-1.amazonaws.com:443", HEADERS, "eu-west-1")
    first, headers, _ = head_of(post.build(b"", credentials, NOW))
    assert (first, headers["Host"]) == ("POST / HTTP/1.1", "kinesis.eu-west-1.amazonaws.com")


@pytest.mark.parametrize(
    "credentials",
    [ReadOnlyCredentials("AKID", "s", "token\r\nX-Evil: 1"), ReadOnlyCredentials("AK\r\nX-Evil: 1", "s", None)],
)
def test_control_characters_in_credentials_never_become_headers(credentials):
    with pytest.raises(ConfigurationError, match="control characters") as raised:
        SignedPost(URLS[0], HEADERS, "eu-west-1").build(b"{}", credentials, NOW)
    assert "Evil" not in str(raised.value)


def test_the_secret_is_not_in_the_repr():
    post = SignedPost(URLS[0], HEADERS, "eu-west-1")
    post.build(b"{}", ReadOnlyCredentials("AKID", "hunter2", None), NOW)
    assert "hunter2" not in repr(post)
