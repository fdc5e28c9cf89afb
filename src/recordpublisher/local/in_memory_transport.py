"""Connects the real client to the endpoint's operations without a socket. This also works on virtual time."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import msgspec

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.kinesis.client import TRANSPORTS, TRANSPORTS_OF_THREADS
from recordpublisher.publishers.kinesis.codec import RAW_EVENTS, RESPONSE_DECODERS
from recordpublisher.publishers.kinesis.error_mapping import StreamLostError, error_for_code, translate_errors

from .account import Account, Delays
from .clock import Clock, ManualClock
from .dispatcher import HTML_PAGE, HtmlPageError, RequestDispatcher, write_events
from .errors import ApiError

BUFFER_BYTES = 1 << 16
"""How many bytes a connection buffers between the writer and the reader, as a socket does."""


@contextmanager
def in_memory(
    streams: Mapping[str, int], *, region: str = "us-east-1", clock: Clock | None = None
) -> Iterator[Account]:
    """Let every job and client that is made in the `with` block use an account in this process, without a port.

    This is for tests of a job, on any event loop and in any thread. A job or sink that was made before the block calls the service.
    `account.find("orders").put(b"...", "key")` puts a record; the `split` and `merge` of the stream reshard it.

    - `streams`: the number of shards of each stream, by its name.
    - `region`: the region in the ARNs.
    - `clock`: the account's time, which decides arrivals and retention; without it, the machine's clock. A test can move a
      `ManualClock`, so that records expire.
    """
    account = Account(clock or SystemClock(), region, Delays(), None)
    if isinstance(clock, ManualClock):
        clock.on_advance(account.wake_all)
    for name, shard_count in streams.items():
        account.create_stream(name, shard_count)

    def transport() -> MemoryTransport:
        return MemoryTransport(account)

    token = TRANSPORTS.set(transport)
    TRANSPORTS_OF_THREADS.append(transport)
    try:
        yield account
    finally:
        TRANSPORTS.reset(token)
        TRANSPORTS_OF_THREADS.remove(transport)


class MemoryTransport:
    """Sends the calls of a client to an account in this process. Owns the open subscriptions."""

    def __init__(
        self, account: Account, deadline_seconds: float = 30.0, dispatcher: RequestDispatcher | None = None
    ) -> None:
        self._account = account
        self._deadline = deadline_seconds
        self._dispatcher = dispatcher or RequestDispatcher(account)
        self._open: set[MemoryResponse] = set()

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call, and return its response. A call that takes longer than `deadline_seconds` fails."""
        return await self.call_with_body(api, _body(parameters))

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """Make a call whose body the client has encoded."""
        with translate_errors(api):
            async with asyncio.timeout(self._deadline):
                response = await _as_of_a_transport(api, self._dispatcher.call(api, body))
            decoder = RESPONSE_DECODERS.get(f"{api}Output", msgspec.json.decode)
            # An operation without output, such as DeregisterStreamConsumer, has an empty response.
            decoded = decoder(response) if response else {}
        date = formatdate(self._account.clock.now_ms() / 1000, usegmt=True)
        return {**decoded, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call whose response stays open."""
        with translate_errors(api):
            subscription = await _as_of_a_transport(api, self._dispatcher.subscribe(_body(parameters)))
        response = MemoryResponse()
        self._open.add(response)
        response.serve(write_events(subscription, response, self._account)).add_done_callback(
            lambda _: self._open.discard(response)
        )
        return {RAW_EVENTS: response}

    async def close(self) -> None:
        """End every subscription."""
        for response in tuple(self._open):
            response.close()


class MemoryResponse:
    """A response that stays open: the endpoint writes to its buffer, and the client reads from it."""

    connection = None  # The client reads nothing ahead, so it needs no connection that it could pause.

    def __init__(self) -> None:
        self.content = SimpleNamespace(readany=self._read)
        self._buffer = bytearray()
        self._has_ended = self._is_broken = self._is_closed = False
        self._changed = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def serve(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start the task that writes events."""
        self._serving = asyncio.create_task(writing)
        return self._serving

    def close(self) -> None:
        """Close the response from the side of the client, and end the task that writes its events."""
        self._is_closed = True
        if self._serving is not None:
            self._serving.cancel()

    async def start(self) -> None:
        """Do nothing, because this response has no head."""

    async def write(self, data: bytes) -> None:
        """Buffer bytes, and wait while the buffer is full."""
        self._buffer += data
        self._changed.set()
        while len(self._buffer) > BUFFER_BYTES and not self._is_closed:
            await self._wait_for_change()
        if self._is_closed:
            raise ConnectionResetError

    async def end(self) -> None:
        """Mark the response as complete."""
        self._has_ended = True
        self._changed.set()

    def abort(self) -> None:
        """Break the connection."""
        self._is_broken = True
        self._changed.set()

    async def _read(self) -> bytes:
        while not self._buffer and not self._has_ended and not self._is_broken:
            await self._wait_for_change()
        if not self._buffer and self._is_broken:
            raise StreamLostError("the response was not completed")
        data = bytes(self._buffer)
        self._buffer.clear()
        self._changed.set()
        return data

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def _as_of_a_transport(api: str, call: Any) -> Any:
    """Await a call. If the result is an error response, an HTML page or a broken connection, raise the error that a real transport
    raises.
    """
    try:
        return await call
    except ApiError as error:
        raise error_for_code(api, error.code, error.message, error.status) from error
    except HtmlPageError as error:
        raise error_for_code(api, "503", HTML_PAGE.decode(), 503) from error
    except ConnectionAbortedError as error:
        raise ConnectionResetError("the server has closed the connection") from error


def _body(parameters: dict[str, Any]) -> bytes:
    return msgspec.json.encode(_to_json_types(parameters))


def _to_json_types(value: Any) -> Any:
    """Return the value with times in the format of the API: seconds since the epoch."""
    if isinstance(value, dict):
        return {key: _to_json_types(each) for key, each in value.items()}
    return value.timestamp() if isinstance(value, datetime) else value
