"""Http2Stream: the response to one request. Its reader controls the flow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Protocol

from ..error_mapping import StreamLostError

_STATUS = re.compile(r"[1-9][0-9]{2}")


class StreamFlowControl(Protocol):
    """The calls that a stream makes to its connection."""

    def acknowledge(self, stream_id: int, length: int) -> None:
        """Allow the server to send `length` more bytes."""

    def reset(self, stream_id: int) -> None:
        """Cancel a stream that is no longer read."""


class Http2Stream:
    """The open response of an event stream, as `EventSubscription` reads it. Owns the bytes that were received but not read.

    Bytes are acknowledged when the reader asks for more, not before. So an unread stream and its reader together hold
    at most one window of bytes, and the server stops sending on this stream only (F1). It is not for concurrent
    readers.
    """

    connection = None
    """Always None, because a stream has no socket of its own to pause."""

    def __init__(self, flow_control: StreamFlowControl, stream_id: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.unacknowledged_bytes = 0
        """Received bytes for which the server has no new window yet."""
        self._flow_control = flow_control
        self._id = stream_id
        self._chunks: list[bytes] = []
        self._delivered = 0
        self._ended = False
        self._failure: str | None = None
        self._changed = asyncio.Event()

    @property
    def content(self) -> Http2Stream:
        """The object with `readany`, which is this stream."""
        return self

    async def wait_for_headers(self) -> None:
        """Wait for status and headers. Raises: StreamLostError if the stream fails before."""
        while not self.status:
            await self._wait()

    async def readany(self) -> bytes:
        """Return the received bytes, or b"" at the end of the body. A cancelled call loses nothing.

        Raises: StreamLostError if the stream has failed.
        """
        self._acknowledge(self._delivered)
        self._delivered = 0
        while not self._chunks:
            if self._ended:
                return b""
            self._acknowledge(self.unacknowledged_bytes)  # the bytes were only padding
            await self._wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._delivered = self.unacknowledged_bytes
        return data

    def close(self) -> None:
        """Close the stream; safe to call twice."""
        self._chunks.clear()
        if not self._ended and self._failure is None:
            self.fail("closed")
            self._flow_control.reset(self._id)
        self._acknowledge(self.unacknowledged_bytes)
        self._delivered = 0

    # --- called by the connection ------------------------------------------------------------------------------------------------

    def on_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Store status and headers. If the status is not a number, the stream fails."""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        status = self.headers.pop(":status", "")
        if _STATUS.fullmatch(status):
            self.status = int(status)
            self._changed.set()
        else:
            self.fail(f"not an HTTP status: {status[:80]!r}")
            self._flow_control.reset(self._id)

    def on_data(self, data: bytes, length: int) -> None:
        """Store received bytes. `length` is their share of the window, including padding."""
        if data:
            self._chunks.append(data)
        self.unacknowledged_bytes += length
        self._changed.set()

    def on_end(self) -> None:
        """Note that the body is complete."""
        self._ended = True
        self._changed.set()

    def fail(self, why: str) -> None:
        """Note that the stream has failed: no more bytes will arrive."""
        self._failure = self._failure or why
        self._changed.set()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        if self._failure is not None:
            raise StreamLostError(self._failure)
        self._changed.clear()
        await self._changed.wait()

    def _acknowledge(self, length: int) -> None:
        if length:
            self.unacknowledged_bytes -= length
            self._flow_control.acknowledge(self._id, length)
