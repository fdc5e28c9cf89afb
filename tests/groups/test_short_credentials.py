"""Credentials that expire again and again, at the store and at Kinesis: a key that is too old is refused, as the services do."""

import asyncio
import json
import re
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from aiohttp import web

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from groups.costs.counting_proxy import CountingProxy, counting_proxy, kept
from groups.load import SteadyLoad
from groups.worker_group import worker_group
from processes.job_files import end
from servers.moto_server import serve_moto

SHARDS, VALID_SECONDS = 4, 3
LATE_SECONDS = 5
"""A busy machine may need them from the signing of a call to its arrival."""
LEASE_MS = 12_000
"""All servers and proxies run in the test's process, and a call to the store has a quarter of this time."""
PATH = "/credentials"
AUTO = {"aws.credentials.provider": "AUTO"}
PUBLISHERS = {
    "POLLING": {"flink.stream.recordpublisher": "POLLING", "flink.shard.getrecords.intervalmillis": 500},
    "EFO": {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "reader"},
}


class ExpiringKeys(CountingProxy):
    """Issues keys at PATH, as a container's agent does, and refuses calls that are signed with an expired one.

    Proxies that share `issued` accept each other's keys. A subscription ends after VALID_SECONDS instead of five minutes.
    """

    def __init__(self, target, issued):
        super().__init__(target)
        self.issued, self.used, self.refused, self.subscriptions = issued, set(), [], 0

    async def _forward(self, request):
        if request.path == PATH:
            return self._issue()
        name = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        key = re.search(r"Credential=([^/]+)/", request.headers["Authorization"])[1]
        if time.monotonic() - self.issued.get(key, 0) > VALID_SECONDS + LATE_SECONDS:
            self.refused.append(name)
            expired = {"__type": "ExpiredTokenException", "message": "expired"}
            return web.Response(status=400, text=json.dumps(expired), content_type="application/x-amz-json-1.1")
        self.used.add(key)
        return await (self._subscribe(request) if name == "SubscribeToShard" else super()._forward(request))

    async def _subscribe(self, request):
        self.subscriptions += 1
        call = partial(self._session.post, self.target + request.path_qs, headers=kept(request.headers))
        async with call(data=await request.read()) as response:
            answer = web.StreamResponse(status=response.status, headers=kept(response.headers))
            await answer.prepare(request)
            try:
                async with asyncio.timeout(VALID_SECONDS):
                    async for chunk in response.content.iter_any():
                        await answer.write(chunk)
            except (TimeoutError, ConnectionError):
                pass
            return answer

    def _issue(self):
        key = f"KEY{len(self.issued)}"
        self.issued[key] = time.monotonic()
        until = datetime.now(UTC) + timedelta(seconds=VALID_SECONDS)
        names = {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
        return web.json_response(names)


@pytest.fixture
def kinesis(monkeypatch, tmp_path):
    """Before Kinesis; its target is set later. It issues the keys of this process and of those that it starts."""
    with counting_proxy("", partial(ExpiringKeys, issued={})) as kinesis:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{kinesis.url}{PATH}")
        yield kinesis


@pytest.fixture
def store(kinesis):
    """Before DynamoDB."""
    with serve_moto() as moto, counting_proxy(moto, partial(ExpiringKeys, issued=kinesis.issued)) as store:
        yield store


def check(proxy):
    """It saw several keys, and each of them in time."""
    assert len(proxy.used) > 4
    assert proxy.refused == []


@pytest.mark.kills
@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_a_group_goes_on_while_its_credentials_expire(kinesis, store, tmp_path, publisher):
    properties = {
        **AUTO,
        **PUBLISHERS[publisher],
        "aws.endpoint": kinesis.url,
        "flink.state.uri": f"dynamodb://groups-{publisher.lower()}/orders",  # moto keeps tables from test to test
        "flink.state.endpoint": store.url,
        "flink.state.checkpoint.interval": 1_000,
        "flink.lease.duration": LEASE_MS,
    }
    with worker_group(tmp_path, SHARDS, properties) as group:
        kinesis.target = group.served.endpoint.url
        with SteadyLoad(group, SHARDS, 2):
            for name in ("first", "second"):
                group.join(name)
            group.wait_until_each_writes("first", "second")
            began = time.monotonic()
            group.wait_until(lambda: time.monotonic() - began > 4 * VALID_SECONDS)
            group.processes["first"].kill()
            group.wait_until_all_is_written()
        group.wait_until_all_is_written()
        assert end(group.processes["second"]) == 0
    for proxy in (kinesis, store):
        check(proxy)


@pytest.mark.kills
@pytest.mark.parametrize("publisher", PUBLISHERS)
async def test_a_fetcher_reads_on_while_its_credentials_expire(kinesis, publisher):
    with serve_in_thread(streams={"orders": SHARDS}) as served:
        kinesis.target, sink = served.endpoint.url, rp.MemorySink()
        properties = {**served.endpoint.properties(), **AUTO, **PUBLISHERS[publisher], "aws.endpoint": kinesis.url}
        start = {"flink.stream.initpos": "TRIM_HORIZON"}
        async with rp.DataFetcher("orders", rp.Properties({**properties, **start}), sink=sink) as fetcher:
            running = asyncio.create_task(fetcher.run())
            sent, began = 0, time.monotonic()
            async with asyncio.timeout(120):
                while (
                    time.monotonic() - began < 4 * VALID_SECONDS or len(kinesis.used) <= 4 or len(sink.records) < sent
                ):
                    if len(sink.records) == sent:
                        await asyncio.to_thread(served.stream("orders").put, *range(sent, sent + 10))
                        sent += 10
                    assert not running.done(), running
                    await asyncio.sleep(0.2)
            fetcher.stop()
            await running
    assert sorted(int(record.data) for record in sink.records) == [*range(sent)]
    check(kinesis)
    assert publisher == "POLLING" or kinesis.subscriptions > SHARDS
