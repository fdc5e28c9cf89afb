"""Who takes the body of an answer while it arrives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..error_mapping import MalformedResponseError

_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?\Z")
_LONGEST_LINE = 8192


class BodyReader(Protocol):
    """Takes the bytes of one body, in order."""

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Take bytes off the front of what is there; the answer is how many. The others come again, with more behind them.

        `is_last`: nothing will follow, all must be taken. What it raises ends the connection and is raised to who asked. `data` may be
        written to, but must be as it was on return.
        """
        ...


class BufferedBody:
    """Keeps a body as it is."""

    content = b""

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Wait for the whole of it."""
        if not is_last:
            return 0
        self.content = bytes(data)
        return len(data)


class ChunkedDecoder:
    """Takes a chunked body apart: `content` is what it holds, whole once `is_done`."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.is_done = False
        self._left = 0
        self._line: Callable[[bytes], None] = self._size

    def feed(self, data: bytes) -> int:
        """Take what can be reject_malformed; the answer is how many bytes that were. Raises: MalformedResponseError."""
        at = 0
        while not self.is_done:
            part = data[at : at + self._left]
            self.content += part
            at, self._left = at + len(part), self._left - len(part)
            if self._left or (end := data.find(b"\r\n", at)) < 0:
                break
            self._line(data[at:end])
            at = end + 2
        if len(data) - at > _LONGEST_LINE and not self.is_done:
            raise MalformedResponseError("a chunk without its size")
        return at

    # --- the lines, each of which says what the next one is -----------------------------------------------------------------------

    def _size(self, line: bytes) -> None:
        size = _SIZE.match(line)
        if size is None:
            raise MalformedResponseError(f"not the size of a chunk: {line[:80]!r}")
        self._left = int(size[1], 16)
        self._line = self._end if self._left else self._trailer

    def _end(self, line: bytes) -> None:
        if line:
            raise MalformedResponseError(f"a chunk longer than its size: {line[:80]!r}")
        self._line = self._size

    def _trailer(self, line: bytes) -> None:
        self.is_done = not line


_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\Z")
_NO_BODY = {204, 304}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers (names in lower case), and what they say of the body: its `length` in bytes, else chunked or until the end."""

    status: int
    headers: dict[str, str]
    length: int | None
    is_chunked: bool
    stays_open: bool

    @property
    def is_interim(self) -> bool:
        """Whether another head follows (100 Continue)."""
        return 100 <= self.status < 200


def parse_response_head(text: bytes) -> ResponseHead:
    """The head in `text`, which ends before the empty line. Raises: MalformedResponseError for what is not HTTP/1 or not plain."""
    first, *lines = text.split(b"\r\n")
    status = _STATUS.match(first)
    if status is None:
        raise MalformedResponseError(f"not an answer of HTTP/1.1: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise MalformedResponseError(f"not a header: {line[:80]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise MalformedResponseError(f"an encoding that was not asked for: {headers['content-encoding'][:80]}")
    code, is_chunked = int(status[2]), _is_chunked(headers)
    told = headers.get("connection", "keep-alive" if status[1] == b"1" else "close").lower()
    return ResponseHead(
        status=code,
        headers=headers,
        length=0 if code in _NO_BODY else None if is_chunked else _length(headers),
        is_chunked=is_chunked and code not in _NO_BODY,
        stays_open="keep-alive" in told or (status[1] == b"1" and "close" not in told),
    )


def _is_chunked(headers: dict[str, str]) -> bool:
    encoding = headers.get("transfer-encoding", "identity").lower()
    if encoding not in ("chunked", "identity"):
        raise MalformedResponseError(f"a transfer encoding that was not asked for: {encoding[:80]}")
    return encoding == "chunked"


def _length(headers: dict[str, str]) -> int | None:
    lengths = {length.strip() for length in headers.get("content-length", "").split(",")}
    length = lengths.pop()
    if lengths or (length and not (length.isascii() and length.isdigit())):
        raise MalformedResponseError(f"no content length: {headers['content-length'][:80]}")
    return int(length) if length else None
