"""A TCP relay in a thread of its own, which a test can switch off and on again: a server that is away, and comes back."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from servers.tcp_relay import TcpRelay


class TcpSwitch:
    """Owns a port before that of a server. While it is off, the port refuses connections; those there are were broken.

    While it is mute, the port accepts connections and never answers.
    """

    def __init__(self, target: int, call: Callable[[Coroutine[Any, Any, None]], None], latency: float) -> None:
        self._call = call
        # keeps the port from being given to somebody else while nobody listens
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self._relay = TcpRelay(target, "http", latency)
        self._relay.port = self._reserved.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._mute: set[asyncio.StreamWriter] = set()
        self.url = self._relay.url

    def turn_on(self) -> None:
        self._call(self._listen(self._relay.serve))

    def turn_mute(self) -> None:
        self._call(self._listen(self._swallow))

    def turn_off(self) -> None:
        self._call(self._stop())

    def release(self) -> None:
        self.turn_off()
        self._reserved.close()

    async def _listen(self, serve: Callable[[Any, Any], Coroutine[Any, Any, None]]) -> None:
        await self._stop()
        self._server = await asyncio.start_server(serve, "127.0.0.1", self._relay.port, reuse_port=True)

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._relay.cut()
        for writer in self._mute:
            writer.transport.abort()

    async def _swallow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._mute.add(writer)
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        finally:
            self._mute.discard(writer)
            writer.transport.abort()


@contextmanager
def switch_before(url: str, latency: float = 0.0) -> Iterator[TcpSwitch]:
    """A switch before the server at this URL, turned on. Responses come `latency` seconds later."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="tcp-switch", daemon=True)
    thread.start()

    def call(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(timeout=30)

    switch = TcpSwitch(int(url.rpartition(":")[2]), call, latency)
    try:
        switch.turn_on()
        yield switch
    finally:
        switch.release()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)
        loop.close()
