"""A proxy before DynamoDB Local that counts calls and the units that DynamoDB would bill, whoever makes them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import aiohttp
from aiohttp import web

WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem")
READS = ("GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems")
P = TypeVar("P", bound="CountingProxy")
_HOP_HEADERS = {"Host", "Content-Length", "Transfer-Encoding", "Connection"}


def kept(headers: Mapping[str, str], *besides: str) -> dict[str, str]:
    """The headers that are passed on."""
    return {key: value for key, value in headers.items() if key not in _HOP_HEADERS | {*besides}}


class CountingProxy:
    """Owns the counts since the last `reset`: calls by name, and `write` and `read` units. `target`: the URL that it passes calls on to."""

    decompresses = True

    def __init__(self, target: str) -> None:
        self.target = target
        self.counts: Counter[str] = Counter()
        self.url = ""

    def reset(self) -> None:
        """Count from now on."""
        self.counts = Counter()

    async def serve(self) -> web.AppRunner:
        """Listen on a free port."""
        application = web.Application(client_max_size=2**30)
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._session = aiohttp.ClientSession(auto_decompress=self.decompresses)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def close(self, runner: web.AppRunner) -> None:
        """Stop listening."""
        await runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body, name = await request.read(), request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        if name in WRITES + READS:
            body = json.dumps({**json.loads(body), "ReturnConsumedCapacity": "TOTAL"}).encode()
        headers = kept(request.headers)
        async with self._session.request(
            request.method, self.target + request.path_qs, data=body, headers=headers
        ) as response:
            content = await response.read()
            self._count(name, response.status, content)
            answered = kept(response.headers, "Content-Encoding")
            return web.Response(status=response.status, body=content, headers=answered)

    def _count(self, name: str, status: int, content: bytes) -> None:
        self.counts[name] += 1
        if name in WRITES + READS:
            found = json.loads(content).get("ConsumedCapacity", []) if status == 200 else {"CapacityUnits": 1}
            units = sum(each["CapacityUnits"] for each in (found if isinstance(found, list) else [found]))
            self.counts["write units" if name in WRITES else "read units"] += units


@contextmanager
def counting_proxy(target: str, kind: Callable[[str], P] = CountingProxy) -> Iterator[P]:
    """A proxy that runs in a thread. A refused conditional write counts as one unit, as DynamoDB bills it for a small item."""
    proxy, loop = kind(target), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        runner = asyncio.run_coroutine_threadsafe(proxy.serve(), loop).result(30)
        yield proxy
        asyncio.run_coroutine_threadsafe(proxy.close(runner), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
