"""The records that `put` writes: lines of files or stdin, and the partition key of each."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from io import FileIO
from pathlib import Path
from uuid import uuid4

import msgspec

from recordpublisher.publishers.errors import RecordPublisherError

BLOCK_BYTES = 1 << 16
MAX_LINE_BYTES = 16 * 2**20
"""More than the largest record of any stream (10 MiB, service limit): it bounds the memory of a file without line ends."""


async def blocks_of_lines(files: Sequence[Path]) -> AsyncGenerator[list[bytes]]:
    """The lines of the files, in order, without their ends and without empty ones; `-` is stdin.

    A line is passed on as soon as it is complete. Raises: OSError; RecordPublisherError for a line that no stream accepts.
    """
    for file in files:
        with FileIO(sys.stdin.fileno(), closefd=False) if str(file) == "-" else FileIO(file) as opened:
            rest = bytearray()  # grows in place: a long line comes in many blocks
            while block := await _read(opened):
                ended, newline, begun = block.rpartition(b"\n")
                if newline:
                    rest += ended
                    yield _non_empty(bytes(rest).split(b"\n"))
                    rest.clear()
                rest += begun
                if len(rest) > MAX_LINE_BYTES:
                    raise RecordPublisherError(f"{file}: a line has more than {MAX_LINE_BYTES:,} bytes")
            yield _non_empty([bytes(rest)])


def _non_empty(lines: list[bytes]) -> list[bytes]:
    return [line for line in (line.removesuffix(b"\r") for line in lines) if line]


async def _read(opened: FileIO) -> bytes:
    """What the file has now, empty at its end. In a daemon thread: a terminal or pipe that stays silent must not keep a stopped command."""
    done: Future[bytes] = Future()
    done.set_running_or_notify_cancel()

    def read() -> None:
        try:
            done.set_result(opened.read(BLOCK_BYTES))
        except (OSError, ValueError) as error:
            done.set_exception(error)

    threading.Thread(target=read, daemon=True).start()
    return await asyncio.wrap_future(done)


PartitionKey = Callable[[bytes], str]
"""The key of a line. Raises: ValueError that says why the line has none."""


def partition_key(fixed: str | None, field: str | None) -> PartitionKey:
    """A fixed key, the value of a field of the line's JSON object, or without both a random key for each record."""
    if fixed is not None:
        return lambda line: fixed
    if field is None:
        return lambda line: uuid4().hex
    return lambda line: _value(line, field)


def _value(line: bytes, field: str) -> str:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    value = found.get(field) if isinstance(found, dict) else None
    if value is None:
        raise ValueError(f"it has no field {field!r}")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
