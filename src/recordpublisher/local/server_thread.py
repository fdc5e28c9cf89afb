"""Runs the endpoint in its own thread, for synchronous code and tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypedDict, TypeVar, Unpack

import msgspec

from .clock import Clock
from .faults.kinds import FaultRule
from .quotas import Quotas
from .server import LocalKinesis
from .streams.account import Delays

P = ParamSpec("P")
T = TypeVar("T")


class LocalKinesisThread:
    """Owns a thread, its event loop and the endpoint that runs there."""

    def __init__(self, endpoint: LocalKinesis, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = endpoint
        self._loop = loop

    @property
    def url(self) -> str:
        """The value for `aws.endpoint`."""
        return self.endpoint.url

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return self.endpoint.port

    def properties(self) -> dict[str, str]:
        """Return the properties with which a job connects to this endpoint."""
        return self.endpoint.properties()

    def create_stream(self, name: str, shard_count: int = 1) -> LocalStream:
        """Add a stream. Raises: ConfigurationError if Kinesis does not allow the name or number, or if the name is taken."""
        self.call(self.endpoint.create_stream, name, shard_count)
        return LocalStream(self, name)

    def stream(self, name: str) -> LocalStream:
        """Return the stream of that name, to put records into it directly."""
        return LocalStream(self, name)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the endpoint's event loop. The data model, the faults and a ManualClock must be used in that thread only."""

        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)


class LocalStream:
    """A stream of an endpoint that runs in a thread. It puts records without a Kinesis client."""

    def __init__(self, served: LocalKinesisThread, name: str) -> None:
        self.name = name
        self._served = served
        self._record_count = 0

    def put(self, *payloads: object, key: str | None = None) -> None:
        """Put a record for each payload: bytes unchanged, text as UTF-8, anything else as JSON.

        `key` is the partition key of all records. Without it each record has a key of its own, which spreads the records over the shards.
        """
        encoded = [_encode(payload) for payload in payloads]
        self._served.call(self._put_all, encoded, key)

    def split(self, shard_id: str) -> tuple[str, ...]:
        """Split a shard in the middle of its hash range, and return the ids of its children. Raises: ApiError if it is closed."""
        return self._served.call(lambda: self._served.endpoint.stream(self.name).split(shard_id))

    def merge(self, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge a shard and the next one, and return the child's id. Raises: ApiError if they are not adjacent, or if one is closed."""
        return self._served.call(lambda: self._served.endpoint.stream(self.name).merge(shard_id, adjacent_shard_id))

    def _put_all(self, payloads: list[bytes], key: str | None) -> None:
        stream = self._served.endpoint.stream(self.name)
        for payload in payloads:
            stream.put(payload, f"key-{self._record_count}" if key is None else str(key))
            self._record_count += 1


def _encode(payload: object) -> bytes:
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else msgspec.json.encode(payload)


class ServerOptions(TypedDict, total=False):
    """The settings of `LocalKinesis` that `serve_in_thread` accepts."""

    clock: Clock | None
    quotas: Quotas | None
    credentials: Mapping[str, str] | None
    delays: Delays | None
    region: str
    consumer_limit: int
    allow_remote: bool
    faults: str | Sequence[FaultRule]
    seed: int
    http2: bool
    tls: bool
    data: Path | str | None


@contextmanager
def serve_in_thread(
    host: str = "127.0.0.1", port: int = 0, streams: Mapping[str, int] | None = None, **options: Unpack[ServerOptions]
) -> Iterator[LocalKinesisThread]:
    """Serve while the `with` block runs. The options are the settings of `LocalKinesis`."""
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
