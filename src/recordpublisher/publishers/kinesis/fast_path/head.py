"""The head of an HTTP/1.1 answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..error_mapping import BrokenAnswerError

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\Z")
_NO_BODY = {204, 304}


@dataclass(frozen=True, slots=True)
class Head:
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


def parse_head(text: bytes) -> Head:
    """The head in `text`, which ends before the empty line. Raises: BrokenAnswerError for what is not HTTP/1 or not plain."""
    first, *lines = text.split(b"\r\n")
    status = _STATUS.match(first)
    if status is None:
        raise BrokenAnswerError(f"not an answer of HTTP/1.1: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise BrokenAnswerError(f"not a header: {line[:80]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise BrokenAnswerError(f"an encoding that was not asked for: {headers['content-encoding'][:80]}")
    code, is_chunked = int(status[2]), _is_chunked(headers)
    told = headers.get("connection", "keep-alive" if status[1] == b"1" else "close").lower()
    return Head(
        status=code,
        headers=headers,
        length=0 if code in _NO_BODY else None if is_chunked else _length(headers),
        is_chunked=is_chunked and code not in _NO_BODY,
        stays_open="keep-alive" in told or (status[1] == b"1" and "close" not in told),
    )


def _is_chunked(headers: dict[str, str]) -> bool:
    encoding = headers.get("transfer-encoding", "identity").lower()
    if encoding not in ("chunked", "identity"):
        raise BrokenAnswerError(f"a transfer encoding that was not asked for: {encoding[:80]}")
    return encoding == "chunked"


def _length(headers: dict[str, str]) -> int | None:
    lengths = {length.strip() for length in headers.get("content-length", "").split(",")}
    length = lengths.pop()
    if lengths or (length and not (length.isascii() and length.isdigit())):
        raise BrokenAnswerError(f"no content length: {headers['content-length'][:80]}")
    return int(length) if length else None
