"""One client serves many calls of S3 and DynamoDB at a time, and for as long as the process lives."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from recordpublisher.plugins.stores.aws_store_service import StoreService
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.remote_stores import side_by_side
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.kinesis.sdk.aws_service import CONCURRENCY
from recordpublisher.publishers.properties.properties import Properties

from servers.moto_server import KEYS
from servers.scripted_http import RawServer, ok

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
    service = StoreService("dynamodb", "dynamodb://t/j", PROPERTIES, client.make)
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

    monkeypatch.setattr(StoreService, "call", wait_for_all)
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
