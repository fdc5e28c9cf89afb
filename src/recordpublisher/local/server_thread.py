"""Runs the endpoint in its own thread, for synchronous code and tests."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from .server import LocalKinesis

P = ParamSpec("P")
T = TypeVar("T")


class LocalKinesisThread:
    """Owns a thread, its event loop and the endpoint that runs there."""

    def __init__(self, endpoint: LocalKinesis, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = endpoint
        self._loop = loop

    @property
    def url(self) -> str:
        """What `aws.endpoint` is set to."""
        return self.endpoint.url

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return self.endpoint.port

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the endpoint's loop: the model, the faults and a ManualClock belong to that thread."""

        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)


@contextmanager
def serve_in_thread(
    host: str = "127.0.0.1", port: int = 0, streams: Mapping[str, int] | None = None, **options: Any
) -> Iterator[LocalKinesisThread]:
    """Serve while the `with` block runs; the options are those of LocalKinesis."""
    endpoint = LocalKinesis(host, port, streams, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="local-kinesis", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(endpoint.start(), loop).result(timeout=30)
        yield LocalKinesisThread(endpoint, loop)
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.close(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)
        loop.close()
