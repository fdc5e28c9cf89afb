"""A proxy before an S3 server that answers 503 now and then, is slow, and loses answers of requests that took effect."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web
from yarl import URL

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_HOP_HEADERS = {"Content-Length", "Transfer-Encoding", "Connection"}


class FaultyS3:
    """Owns the counts of what happened to requests, and whether it is a bad time: then half of them get 503.

    Otherwise of a hundred requests three get 503, two wait for up to two seconds, and of three the answer is lost.
    """

    def __init__(self, target: str, chance: random.Random) -> None:
        self._target, self._chance = target, chance
        self.counts: Counter[str] = Counter()
        self.is_bad_time = False
        self.url = ""

    async def serve(self) -> web.AppRunner:
        """Listen on a free port."""
        application = web.Application(client_max_size=2**30)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._session = aiohttp.ClientSession(auto_decompress=False)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def close(self, runner: web.AppRunner) -> None:
        """Stop listening."""
        await runner.cleanup()
        await self._session.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body, drawn = await request.read(), self._chance.random()
        self.counts["requests"] += 1
        if drawn < (0.5 if self.is_bad_time else 0.03):
            self.counts["503"] += 1
            return web.Response(status=503, body=SLOW_DOWN, content_type="application/xml")
        if 0.95 < drawn < 0.97:
            self.counts["slow"] += 1
            await asyncio.sleep(self._chance.uniform(0.2, 2))
        answer = await self._forward(request, body)
        if drawn > 0.97 and request.transport is not None:
            self.counts["answers lost"] += 1
            request.transport.abort()
        return answer

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        url = URL(self._target + request.raw_path, encoded=True)
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_HEADERS}
        async with self._session.request(request.method, url, data=body, headers=headers) as response:
            content = await response.read()
            answered = {name: value for name, value in response.headers.items() if name not in _HOP_HEADERS}
            if request.method != "HEAD":
                return web.Response(status=response.status, body=content, headers=answered)
            answer = web.StreamResponse(status=response.status, headers=answered)
            answer.content_length = int(response.headers.get("Content-Length", 0))
            return answer


@contextmanager
def faulty_s3(target: str, chance: random.Random) -> Iterator[FaultyS3]:
    """The proxy, which runs in a thread."""
    proxy, loop = FaultyS3(target, chance), asyncio.new_event_loop()
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
