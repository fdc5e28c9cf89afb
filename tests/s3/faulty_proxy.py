"""A proxy before an S3 server that answers 503 now and then, is slow, and loses answers of requests that took effect."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractContextManager

from aiohttp import web
from yarl import URL

from groups.costs.counting_proxy import CountingProxy, counting_proxy

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_HOP_HEADERS = {"Content-Length", "Transfer-Encoding", "Connection"}


class FaultyS3(CountingProxy):
    """Owns the counts of what happened to requests, and whether it is a bad time: then half of them get 503.

    Otherwise of a hundred requests three get 503, two wait for up to two seconds, and of three the answer is lost.
    """

    decompresses = False

    def __init__(self, target: str, chance: random.Random) -> None:
        super().__init__(target)
        self._chance = chance
        self.is_bad_time = False

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body, drawn = await request.read(), self._chance.random()
        self.counts["requests"] += 1
        if drawn < (0.5 if self.is_bad_time else 0.03):
            self.counts["503"] += 1
            return web.Response(status=503, body=SLOW_DOWN, content_type="application/xml")
        if 0.95 < drawn < 0.97:
            self.counts["slow"] += 1
            await asyncio.sleep(self._chance.uniform(0.2, 2))
        answer = await self._passed_on(request, body)
        if drawn > 0.97 and request.transport is not None:
            self.counts["answers lost"] += 1
            request.transport.abort()
        return answer

    async def _passed_on(self, request: web.Request, body: bytes) -> web.StreamResponse:
        url = URL(self.target + request.raw_path, encoded=True)
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_HEADERS}
        async with self._session.request(request.method, url, data=body, headers=headers) as response:
            content = await response.read()
            answered = {name: value for name, value in response.headers.items() if name not in _HOP_HEADERS}
            if request.method != "HEAD":
                return web.Response(status=response.status, body=content, headers=answered)
            answer = web.StreamResponse(status=response.status, headers=answered)
            answer.content_length = int(response.headers.get("Content-Length", 0))
            return answer


def faulty_s3(target: str, chance: random.Random) -> AbstractContextManager[FaultyS3]:
    """The proxy, which runs in a thread."""
    return counting_proxy(target, lambda url: FaultyS3(url, chance))
