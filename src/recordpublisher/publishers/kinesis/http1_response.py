"""Parses HTTP/1.1 responses: the head (`parse_response_head`), and the body, chunked or not, as its bytes arrive (`BodyReader`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import msgspec

from .error_mapping import MalformedResponseError

# --- the head of a response ---------------------------------------------------------------------------------------------------------

_STATUS = re.compile(r"HTTP/1\.([01]) ([0-9]{3})(?: [^\r\n]*)?\Z")
_NO_BODY = {204, 304}
_LENGTH_DIGITS = 19


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a response: its status, its headers (names in lower case), and how its body ends.

    The body has `length` bytes, or is chunked, or ends when the connection is closed.
    """

    status: int
    headers: dict[str, str]
    length: int | None
    is_chunked: bool
    keeps_alive: bool

    @property
    def is_interim(self) -> bool:
        """Whether this is not the final response, so that another head follows (100 Continue)."""
        return 100 <= self.status < 200


def parse_response_head(text: bytes) -> ResponseHead:
    """Parse the head of a response from `text`, which has no empty line at its end.

    Raises: MalformedResponseError if the head is malformed, or if the body has an encoding that was not requested.
    """
    first, *lines = text.decode("latin-1").split("\r\n")
    status = _STATUS.match(first)
    if status is None:
        raise MalformedResponseError(f"the response is not HTTP/1.1: it begins with {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise MalformedResponseError(f"the response has a line that is not a header: {line[:80]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise MalformedResponseError(
            f"the response has an encoding that was not requested: {headers['content-encoding'][:80]}"
        )
    code, is_chunked = int(status[2]), _is_chunked(headers)
    connection = headers.get("connection", "keep-alive" if status[1] == "1" else "close").lower()
    return ResponseHead(
        status=code,
        headers=headers,
        length=0 if code in _NO_BODY else None if is_chunked else _length(headers),
        is_chunked=is_chunked and code not in _NO_BODY,
        keeps_alive="keep-alive" in connection or (status[1] == "1" and "close" not in connection),
    )


def _is_chunked(headers: dict[str, str]) -> bool:
    encoding = headers.get("transfer-encoding", "identity").lower()
    if encoding not in ("chunked", "identity"):
        raise MalformedResponseError(f"the response has a transfer encoding that was not requested: {encoding[:80]}")
    return encoding == "chunked"


def _length(headers: dict[str, str]) -> int | None:
    lengths = {length.strip() for length in headers.get("content-length", "").split(",")}
    length = lengths.pop()
    if lengths or (length and not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS)):
        raise MalformedResponseError(f"the response has an invalid content length: {headers['content-length'][:80]}")
    return int(length) if length else None


# --- the body of a response ---------------------------------------------------------------------------------------------------------


class BodyReader(Protocol):
    """Consumes the bytes of one body, in order, as they arrive."""

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Consume bytes from the front of `data`, and return how many. The next call gets the bytes that were not consumed, followed by
        more.

        If `is_last`, no more bytes follow, so all must be consumed. `data` may be changed during the call, but must be restored. An
        exception closes the connection, and is raised to the caller of the request.
        """


ReaderFactory = Callable[[ResponseHead], BodyReader]


class BufferedBody:
    """Keeps a whole body in `content`, for responses that are decoded at once."""

    content = b""

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Consume nothing until `is_last`, then the whole body."""
        if not is_last:
            return 0
        self.content = bytes(data)
        return len(data)


_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?\Z")
_LONGEST_LINE = 8192


class ChunkedDecoder:
    """Decodes a chunked body into `content`, which is complete once `is_done`."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.is_done = False
        self._left = self._trailer_bytes = 0
        self._on_line: Callable[[bytes], None] = self._on_size

    def feed(self, data: bytes) -> int:
        """Decode complete lines and chunks. Return how many bytes were consumed.

        Raises: MalformedResponseError if a line is too long, a chunk's size is invalid, or a chunk is longer than its size.
        """
        at = 0
        while not self.is_done:
            part = data[at : at + self._left]
            self.content += part
            at, self._left = at + len(part), self._left - len(part)
            if self._left or (end := data.find(b"\r\n", at)) < 0:
                break
            self._on_line(data[at:end])
            at = end + 2
        if len(data) - at > _LONGEST_LINE and not self.is_done:
            raise MalformedResponseError("the response has a chunk without its size")
        return at

    # --- handlers of a line, each of which sets the handler of the next -----------------------------------------------------------

    def _on_size(self, line: bytes) -> None:
        size = _SIZE.match(line)
        if size is None:
            raise MalformedResponseError(f"the response has an invalid size of a chunk: {line[:80]!r}")
        self._left = int(size[1], 16)
        self._on_line = self._on_chunk_end if self._left else self._on_trailer

    def _on_chunk_end(self, line: bytes) -> None:
        if line:
            raise MalformedResponseError(f"the response has a chunk that is longer than its size: {line[:80]!r}")
        self._on_line = self._on_size

    def _on_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line)
        if self._trailer_bytes > _LONGEST_LINE:
            raise MalformedResponseError(f"the trailers of the response are longer than {_LONGEST_LINE // 1024} KiB")
        self.is_done = not line
