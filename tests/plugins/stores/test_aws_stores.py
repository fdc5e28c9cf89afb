"""S3 and DynamoDB: which errors a later retry may cure, how much of a response is read, and many calls at a time."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError, SSLError

from recordpublisher import StateError, StoreUnavailableError
from recordpublisher.plugins.stores.aws_store_calls import AwsStoreCalls
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.dynamodb_store import DynamoDbStore, create_table
from recordpublisher.plugins.stores.object_store import side_by_side
from recordpublisher.plugins.stores.s3_store import S3Store
from recordpublisher.publishers import kinesis
from recordpublisher.publishers.kinesis.error_mapping import MAX_RESPONSE_BYTES
from recordpublisher.publishers.kinesis.sdk.aws_service import CONCURRENCY
from recordpublisher.publishers.properties.properties import Properties

from servers.endless_server import CHUNK, CHUNKED, LONG, MIB, OK, serve_endless
from servers.moto_server import KEYS
from servers.scripted_http import Last, RawServer, RefusedEarly, ok


def failing_service(error):
    """Its client raises the given error."""

    @asynccontextmanager
    async def fail():
        raise error
        yield

    return AwsStoreCalls("dynamodb", "dynamodb://table/job", Properties({"aws.region": "eu-west-1"}), fail)


def response(code: str, status: int) -> ClientError:
    found = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(found, "GetItem")  # type: ignore[arg-type]


async def test_an_endpoint_that_speaks_no_tls_is_told_with_what_to_check():
    cause = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    cause.reason = "WRONG_VERSION_NUMBER"
    with pytest.raises(StateError, match="the server speaks no TLS: check the endpoint") as caught:
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
    source = inspect.getsource(store) + (inspect.getsource(create_table) if store is DynamoDbStore else "")
    called = set(re.findall(r"""(?:call|pages)\(\s*"(\w+)\"""", source))
    allowed = {name.partition(":")[2].replace("ListBucket", "ListObjectsV2") for name in store.actions}

    assert allowed == called


S3, DYNAMODB = "s3://bucket/job", "dynamodb://states/job"
BAD = b"HTTP/1.1 404 Bad\r\n"


def store_at(url, location):
    given = {"aws.region": "us-east-1", "flink.state.endpoint": url, "aws.request.timeout": 600_000, **KEYS}
    return conditional_store_of(location, "uri", Properties(given))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("location", "api", "arguments"),
    [
        (S3, "get", ["a"]),
        (S3, "list_names", [""]),
        (S3, "delete", ["a"]),
        (DYNAMODB, "get", ["a"]),
        (DYNAMODB, "list_names", [""]),
    ],
)
@pytest.mark.parametrize(
    ("head", "again"),
    [(OK + LONG, b" " * MIB), (OK + CHUNKED, CHUNK), (BAD + CHUNKED, CHUNK)],
    ids=["length", "chunked", "error"],
)
async def test_a_body_without_an_end_is_not_read_to_the_deadline(location, api, arguments, head, again):
    async with serve_endless(head, again) as server:
        store = store_at(server.url, location)
        with pytest.raises(StateError, match="33,554,432"):
            await getattr(store, api)(*arguments)
        await store.close()
        assert server.sent < 2 * MAX_RESPONSE_BYTES


@asynccontextmanager
async def store_that_reads(location, *responses):
    raw = RawServer(*responses)
    server = await asyncio.start_server(raw.handle, "127.0.0.1", 0)
    store = store_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", location)
    async with server:
        yield store
        await store.close()
        await raw.stop()


def response_bounded_responses(body, head=OK):
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


CUT = Last(OK + b'ETag: "1"\r\nContent-Length: 9\r\n\r\n{}')


async def test_a_call_whose_body_is_cut_is_tried_again():
    async with store_that_reads(DYNAMODB, CUT, response_bounded_responses(b"{}")) as store:
        assert await store.get("a") is None


async def test_an_object_that_is_cut_is_an_error():
    async with store_that_reads(S3, CUT) as store:
        with pytest.raises(StateError, match="GetObject at s3://bucket/job failed"):
            await store.get("a")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"null", b"7", b'{"Item":{"value":5}}', b'{"Item":{"value":{"B":"x"}}}', b"\xff"]
)
async def test_a_response_that_is_not_as_documented_is_an_error(body):
    async with store_that_reads(DYNAMODB, response_bounded_responses(body)) as store:
        with pytest.raises(StateError, match="GetItem at dynamodb://states/job"):
            await store.get("a")


async def test_an_error_that_is_nested_too_deeply_is_an_error():
    async with store_that_reads(
        S3, response_bounded_responses(b"<a>" * 20_000 + b"</a>" * 20_000, b"HTTP/1.1 400 Bad\r\n")
    ) as store:
        with pytest.raises(StateError, match="GetObject at s3://bucket/job"):
            await store.get("a")


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.list_names(""),
        lambda store: store.delete("a"),
        lambda store: store.get("a"),
        lambda store: store.put_if_absent("a", b"1"),
        lambda store: store.compare_and_set("a", b"1", "v"),
    ],
    ids=["list", "delete", "get", "put", "set"],
)
@pytest.mark.parametrize("location", [S3, DYNAMODB])
async def test_a_response_of_404_without_an_error_code_does_not_mean_that_nothing_is_stored(call, location):
    async with store_that_reads(location, RefusedEarly(response_bounded_responses(b"", BAD))) as store:
        with pytest.raises(StoreUnavailableError, match=f"at {location} failed: .*HTTP 404 without an error code"):
            await call(store)


@pytest.mark.parametrize(
    ("location", "call", "field"),
    [
        (S3, lambda store: store.get("a"), "ETag"),
        (S3, lambda store: store.put_if_absent("a", b"1"), "ETag"),
        (DYNAMODB, lambda store: store.list_names(""), "Items"),
        (DYNAMODB, lambda store: store.list(""), "Items"),
        (DYNAMODB, lambda store: store.list_versions(""), "Items"),
    ],
)
async def test_a_response_without_what_it_must_have_may_be_asked_for_again(location, call, field):
    async with store_that_reads(
        location, RefusedEarly(response_bounded_responses(b"{}" if location == DYNAMODB else b""))
    ) as store:
        with pytest.raises(StoreUnavailableError, match=f"at {location} failed: .*'{field}'"):
            await call(store)


@pytest.mark.parametrize(
    ("location", "page"),
    [
        (DYNAMODB, b'{"Items":[],"LastEvaluatedKey":{"job":{"S":"job"},"item":{"S":"a"}}}'),
        (S3, b"<L><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></L>"),
    ],
)
async def test_a_page_that_names_itself_as_the_next_one_is_an_error(location, page):
    async with store_that_reads(location, *[response_bounded_responses(page)] * 3) as store:
        with pytest.raises(StoreUnavailableError, match="returns the same page again and again"):
            await store.list_names("")


PROPERTIES = Properties({"aws.region": "us-east-1", **KEYS})
LIMIT_SECONDS = 60


class WaitingClient:
    """A client whose calls wait until so many are open at a time."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.open = self.most = self.opened = 0
        self.are_open = asyncio.Event()

    @asynccontextmanager
    async def make(self):
        self.opened += 1
        await asyncio.sleep(0)
        yield self

    async def get_item(self, **_):
        self.open += 1
        self.most = max(self.most, self.open)
        if self.open == self.wanted:
            self.are_open.set()
        try:
            await self.are_open.wait()
            for _ in range(10 * self.wanted):  # others would begin meanwhile
                await asyncio.sleep(0)
            return {}
        finally:
            self.open -= 1


async def test_calls_at_the_same_time_share_one_client_and_their_number_is_limited():
    client = WaitingClient(CONCURRENCY)
    service = AwsStoreCalls("dynamodb", "dynamodb://t/j", PROPERTIES, client.make)
    async with asyncio.timeout(LIMIT_SECONDS):
        await side_by_side(service.call("GetItem", len) for _ in range(3 * CONCURRENCY))
    assert (client.opened, client.most) == (1, CONCURRENCY)
    await service.close()


@pytest.mark.parametrize("location", ["s3://bucket/claims", "dynamodb://table/job"])
async def test_values_are_read_side_by_side(location, monkeypatch):
    everyone = asyncio.Barrier(17)

    async def wait_for_all(self, api, parse, **parameters):
        await everyone.wait()
        return parse({"Body": b"v", "ETag": "1", "Item": {"version": {"S": "1"}, "value": {"B": b"v"}}})

    monkeypatch.setattr(AwsStoreCalls, "call", wait_for_all)
    names = [f"claim-{n}" for n in range(17)]
    async with asyncio.timeout(LIMIT_SECONDS):
        found = await conditional_store_of(location, "uri", PROPERTIES).get_all(names)
    assert list(found) == names


async def test_the_first_error_ends_the_other_calls():
    ended = asyncio.Event()

    async def fail():
        raise StoreUnavailableError("away")

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(StoreUnavailableError, match="away"):
        await side_by_side([wait(), fail()])
    async with asyncio.timeout(LIMIT_SECONDS):
        await ended.wait()


async def test_a_client_that_stays_open_renews_its_credentials(tmp_path, monkeypatch):
    """The SDK renews keys in the last ten minutes of their life."""
    monkeypatch.setattr("recordpublisher.publishers.kinesis.sdk.session.RENEWAL_SECONDS", 0.0)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = cat {tmp_path / 'keys'}\n")
    end = (datetime.now(UTC) + timedelta(minutes=9)).isoformat()
    provider = "aws.credentials.provider"
    given = {"aws.region": "us-east-1", provider: "PROFILE", f"{provider}.profile.name": "p"}
    raw = RawServer(ok(b"{}"), ok(b"{}"))
    server = await asyncio.start_server(raw.handle, "127.0.0.1", 0)
    async with server:
        given["flink.state.endpoint"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        store = conditional_store_of("dynamodb://table/job", "uri", Properties(given))
        for key in ("FIRST", "SECOND"):
            keys = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t", "Expiration": end}
            (tmp_path / "keys").write_text(json.dumps(keys))
            await store.get("a")
        await store.close()
        await raw.stop()
    assert [b"Credential=FIRST/" in raw.requests[0], b"Credential=SECOND/" in raw.requests[1]] == [True, True]
    assert raw.connections == 1
