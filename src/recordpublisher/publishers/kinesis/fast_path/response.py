"""Who takes the body of an answer while it arrives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from ..error_mapping import BrokenAnswerError

_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?\Z")
_LONGEST_LINE = 8192


class BodyReader(Protocol):
    """Takes the bytes of one body, in order."""

    def take(self, data: memoryview, is_rest: bool) -> int:
        """Take bytes off the front of what is there; the answer is how many. The others come again, with more behind them.

        `is_rest`: nothing will follow, all must be taken. What it raises ends the connection and is raised to who asked. `data` may be
        written to, but must be as it was on return.
        """
        ...


class WholeBody:
    """Keeps a body as it is."""

    content = b""

    def take(self, data: memoryview, is_rest: bool) -> int:
        """Wait for the whole of it."""
        if not is_rest:
            return 0
        self.content = bytes(data)
        return len(data)


class Dechunker:
    """Takes a chunked body apart: `content` is what it holds, whole once `is_done`."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.is_done = False
        self._left = 0
        self._line: Callable[[bytes], None] = self._size

    def take(self, data: bytes) -> int:
        """Take what can be understood; the answer is how many bytes that were. Raises: BrokenAnswerError."""
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
            raise BrokenAnswerError("a chunk without its size")
        return at

    # --- the lines, each of which says what the next one is -----------------------------------------------------------------------

    def _size(self, line: bytes) -> None:
        size = _SIZE.match(line)
        if size is None:
            raise BrokenAnswerError(f"not the size of a chunk: {line[:80]!r}")
        self._left = int(size[1], 16)
        self._line = self._end if self._left else self._trailer

    def _end(self, line: bytes) -> None:
        if line:
            raise BrokenAnswerError(f"a chunk longer than its size: {line[:80]!r}")
        self._line = self._size

    def _trailer(self, line: bytes) -> None:
        self.is_done = not line
