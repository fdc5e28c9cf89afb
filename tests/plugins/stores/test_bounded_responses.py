"""No response of S3 or DynamoDB is read beyond 32 MiB, and one that cannot be used is the store's error."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.kinesis.error_mapping import MAX_RESPONSE_BYTES
from recordpublisher.publishers.properties.properties import Properties

from servers.endless_server import CHUNK, CHUNKED, LONG, MIB, OK, serve_endless
from servers.moto_server import KEYS
from servers.scripted_http import Last, RawServer, RefusedEarly

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


def response(body, head=OK):
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


CUT = Last(OK + b'ETag: "1"\r\nContent-Length: 9\r\n\r\n{}')


async def test_a_call_whose_body_is_cut_is_tried_again():
    async with store_that_reads(DYNAMODB, CUT, response(b"{}")) as store:
        assert await store.get("a") is None


async def test_an_object_that_is_cut_is_an_error():
    async with store_that_reads(S3, CUT) as store:
        with pytest.raises(StateError, match="GetObject at s3://bucket/job failed"):
            await store.get("a")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"null", b"7", b'{"Item":{"value":5}}', b'{"Item":{"value":{"B":"x"}}}', b"\xff"]
)
async def test_a_response_that_is_not_as_documented_is_an_error(body):
    async with store_that_reads(DYNAMODB, response(body)) as store:
        with pytest.raises(StateError, match="GetItem at dynamodb://states/job"):
            await store.get("a")


async def test_an_error_that_is_nested_too_deeply_is_an_error():
    async with store_that_reads(S3, response(b"<a>" * 20_000 + b"</a>" * 20_000, b"HTTP/1.1 400 Bad\r\n")) as store:
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
    async with store_that_reads(location, RefusedEarly(response(b"", BAD))) as store:
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
    async with store_that_reads(location, RefusedEarly(response(b"{}" if location == DYNAMODB else b""))) as store:
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
    async with store_that_reads(location, *[response(page)] * 3) as store:
        with pytest.raises(StoreUnavailableError, match="the same page comes again and again"):
            await store.list_names("")
