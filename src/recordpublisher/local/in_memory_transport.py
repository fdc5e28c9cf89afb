"""MemoryTransport: the endpoint's operations without a socket, for the real client on any loop, virtual time included."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import msgspec
from aiohttp import ClientPayloadError, ServerDisconnectedError

from recordpublisher.publishers.kinesis.codec.sdk_parser import RAW_EVENTS, RESPONSE_DECODERS
from recordpublisher.publishers.kinesis.error_mapping import error_for_code, translate_errors

from .api_errors import ApiError
from .dispatcher import PAGE, Exchange, PageError
from .event_writer import push
from .streams.account import Account

ROOM_BYTES = 1 << 16
"""What a connection holds between writer and reader, as a socket's buffers do."""


class MemoryTransport:
    """Carries calls to an account in this process. Owns the subscriptions that it opened."""

    def __init__(self, account: Account, deadline_seconds: float = 30.0, exchange: Exchange | None = None) -> None:
        self._account = account
        self._deadline = deadline_seconds
        self._exchange = exchange or Exchange(account)
        self._open: set[MemoryResponse] = set()

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call with a deadline."""
        return await self.call_with_body(api, _body(parameters))

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """A call whose body the client has encoded."""
        with translate_errors(api):
            async with asyncio.timeout(self._deadline):
                answer = await self._met(api, self._exchange.answer(api, body))
            decoded = RESPONSE_DECODERS.get(f"{api}Output", msgspec.json.decode)(answer)
        date = formatdate(self._account.clock.now_ms() / 1000, usegmt=True)
        return {**decoded, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call whose answer stays open."""
        with translate_errors(api):
            subscription = await self._met(api, self._exchange.subscribe(_body(parameters)))
        response = MemoryResponse()
        self._open.add(response)
        response.serve(push(subscription, response, self._account)).add_done_callback(
            lambda _: self._open.discard(response)
        )
        return {RAW_EVENTS: response}

    async def close(self) -> None:
        """End every subscription."""
        for response in tuple(self._open):
            response.close()

    @staticmethod
    async def _met(api: str, answering: Any) -> Any:
        """What the SDK makes of an answer that is an error, of a page of HTML and of a connection that breaks."""
        try:
            return await answering
        except ApiError as error:
            raise error_for_code(api, error.code, error.message, error.status) from error
        except PageError as error:
            raise error_for_code(api, "503", PAGE.decode(), 503) from error
        except ConnectionAbortedError as error:
            raise ServerDisconnectedError from error


class MemoryResponse:
    """An answer that stays open: the Wire of the one side, the response of the other. Owns the bytes in between."""

    connection = None  # nothing is read ahead that could be paused

    def __init__(self) -> None:
        self.content = SimpleNamespace(readany=self._read)
        self._held = bytearray()
        self._has_ended = self._is_broken = self._is_closed = False
        self._changed = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def serve(self, pushing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let the endpoint write until the reader closes."""
        self._serving = asyncio.create_task(pushing)
        return self._serving

    def close(self) -> None:
        """The reader goes away."""
        self._is_closed = True
        if self._serving is not None:
            self._serving.cancel()

    async def start(self) -> None:
        """Nothing goes before the first frame."""

    async def write(self, data: bytes) -> None:
        """Hand bytes over; wait while more are held than a socket would."""
        self._held += data
        self._notify()
        while len(self._held) > ROOM_BYTES and not self._is_closed:
            await self._change()
        if self._is_closed:
            raise ConnectionResetError

    async def end(self) -> None:
        """End well."""
        self._has_ended = True
        self._notify()

    def abort(self) -> None:
        """Break."""
        self._is_broken = True
        self._notify()

    async def _read(self) -> bytes:
        while not self._held and not self._has_ended and not self._is_broken:
            await self._change()
        if not self._held and self._is_broken:
            raise ClientPayloadError("Response payload is not completed")
        data = bytes(self._held)
        self._held.clear()
        self._notify()
        return data

    def _notify(self) -> None:
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _body(parameters: dict[str, Any]) -> bytes:
    return msgspec.json.encode(_plain(parameters))


def _plain(value: Any) -> Any:
    """Times as the wire has them, in seconds since the epoch."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.timestamp() if isinstance(value, datetime) else value
