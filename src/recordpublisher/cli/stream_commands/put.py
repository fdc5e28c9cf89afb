"""`recordpublisher put`: lines of files or stdin as records of a stream, each with its partition key."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import uuid4

import msgspec
import typer

from recordpublisher.consumer.typed_values import json_field
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.sinks import AGGREGATION_ENABLED
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.undecodable import UNDECODABLE

from ..execution import FAILED, print_error, print_note, run_to_end, run_until_signal
from ..options import ProducerProperties, StreamName, with_properties
from .rate_notice import RateNotice

if TYPE_CHECKING:
    from recordpublisher.plugins.sinks.kinesis.kinesis_sink import KinesisSink

BLOCK_BYTES = 1 << 16
MAX_LINE_BYTES = 16 * 2**20
"""More than the largest record of any stream (10 MiB, service limit): it bounds the memory of a file without line ends."""


class Line(NamedTuple):
    """A line without its end, its file, and its number there, from 1."""

    file: Path
    number: int
    data: bytes

    @property
    def place(self) -> str:
        """The place of the line for error messages, such as `line 3 of orders.jsonl`."""
        return f"line {self.number}" if str(self.file) == "-" else f"line {self.number} of {self.file}"


async def blocks_of_lines(files: Sequence[Path]) -> AsyncGenerator[list[Line]]:
    """Yield the lines of the files, in order, without empty ones; `-` is stdin.

    A line is passed on as soon as it is complete.

    Raises: OSError if a file cannot be read; RecordPublisherError if a line is too long for any stream.
    """
    for file in files:
        number = 1
        with FileIO(sys.stdin.fileno(), closefd=False) if str(file) == "-" else FileIO(file) as opened:
            rest = bytearray()  # grows in place: a long line comes in many blocks
            while block := await _read(opened):
                ended, newline, begun = block.rpartition(b"\n")
                if newline:
                    rest += ended
                    lines = bytes(rest).split(b"\n")
                    rest.clear()
                    yield _non_empty(file, number, lines)
                    number += len(lines)
                rest += begun
                if len(rest) > MAX_LINE_BYTES:
                    raise RecordPublisherError(f"{file}: line {number} has more than {MAX_LINE_BYTES:,} bytes")
            yield _non_empty(file, number, [bytes(rest)])


def _non_empty(file: Path, first: int, lines: list[bytes]) -> list[Line]:
    numbered = (Line(file, number, line.removesuffix(b"\r")) for number, line in enumerate(lines, first))
    return [line for line in numbered if line.data]


async def _read(opened: FileIO) -> bytes:
    """Read the bytes that the file has now; empty at its end.

    A daemon thread reads them, because a terminal or pipe that stays silent must not keep a command running that was stopped.
    """
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
    """Return a function that gives the key of a line.

    The key is fixed, or the value of a field of the line's JSON object. If neither is given, each record has a random key.
    """
    if fixed is not None:
        return lambda line: fixed
    if field is None:
        return lambda line: uuid4().hex
    decode = json_field("--key-field", field, Any, None)

    def key_of(line: bytes) -> str:
        try:
            value = decode(line).value
        except UNDECODABLE as error:
            raise ValueError(f"it is not a JSON object: {error}") from error
        if value is None:
            raise ValueError(f"it has no field {field!r}")
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return key_of


PROGRESS_SECONDS = 10.0
RATE_CHECK_SECONDS = 1.0
SHOWN_BYTES = 80


@with_properties
def put(
    stream: StreamName,
    properties: ProducerProperties,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Files; `-` or none: standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The partition key of every record; default: a random one.")] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="Lines are JSON objects, and this field is the partition key.")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="At most this many records per second.")] = None,
    aggregate: Annotated[
        bool, typer.Option("--aggregate", help="Put KPL aggregates: many lines in one Kinesis record.")
    ] = False,
) -> None:
    """Put each line of files or of standard input into a stream; empty lines are left out.

    Waits while the stream does not take more (1,000 records and 1 MiB a second for each shard), and repeats refused records
    for 15 minutes (flink.job.max.outage). The count goes to stderr, and each line that could not be put is named there with
    its number; then the exit code is 1. Ctrl-C ends the reading; what was read is put. The exit
    code is then 0 for standard input, and 130 for files.

    Example: recordpublisher put orders orders.jsonl --key-field customer --rate 500

    Example: recordpublisher put orders --key test --aggregate -
    """
    if key is not None and key_field is not None:
        raise ConfigurationError("--key-field", key_field, "without --key", reason="both are the partition key")
    if aggregate:
        properties = properties.merged({AGGREGATION_ENABLED.key: "true"})
    putting = Putting(partition_key(key, key_field), rate)
    given = files or [Path("-")]
    # Standard input may have no end, and Ctrl-C is then the usual one; of a file, a part looks like the whole.
    (run_until_signal if Path("-") in given else run_to_end)(putting.run(stream, properties, given))
    if putting.failed:
        raise typer.Exit(FAILED)


class Putting:
    """Puts lines until the files end. Owns the count of records that were not put."""

    def __init__(self, key_of: PartitionKey, rate: float | None, clock: Clock | None = None) -> None:
        self._key_of = key_of
        self._clock = clock or SystemClock()
        self._pace = None if rate is None else Pace(rate, self._clock)
        self.failed = 0

    async def run(self, stream: str, properties: Properties, files: list[Path]) -> None:
        """Put every line. Raises: the errors of KinesisSink; OSError if a file cannot be read."""
        from recordpublisher.plugins.sinks.kinesis.kinesis_sink import KinesisSink

        sink = KinesisSink(
            stream,
            properties,
            fail_on_error=False,
            on_failure=lambda failed: self._report(failed.context, f"{failed.error_code}: {failed.error_message}"),
            clock=self._clock,
        )
        async with sink, self._counted(sink, RateNotice(properties)), aclosing(blocks_of_lines(files)) as blocks:
            async for lines in blocks:
                for line in lines:
                    await self._put(sink, line)

    async def _put(self, sink: KinesisSink, line: Line) -> None:
        try:
            key = self._key_of(line.data)
        except ValueError as error:
            self._report(line, str(error))
            return
        if self._pace is not None:
            await self._pace.wait_for_turn()
        await sink.put(line.data, key, context=line)

    def _report(self, line: Line, reason: str) -> None:
        self.failed += 1
        shown = line.data[:SHOWN_BYTES].decode(errors="replace") + "..." * (len(line.data) > SHOWN_BYTES)
        print_error(f"not put: {line.place}: {shown!r}: {reason}")

    @asynccontextmanager
    async def _counted(self, sink: KinesisSink, notice: RateNotice) -> AsyncIterator[None]:
        """Print count and rate on stderr, now and then, and at the end when every record is acknowledged; once, that records wait for the
        rate limit."""
        start = self._clock.monotonic()

        def print_count() -> None:
            put, seconds = sink.metrics()["numRecordsOut"], self._clock.monotonic() - start
            failed = f", {self.failed:,} not put" if self.failed else ""
            print_note(
                f"put {counted(put, 'record')} in {seconds:.1f} s ({put / max(seconds, 0.001):,.0f} a second){failed}"
            )

        async def keep_printing() -> None:
            while True:
                await asyncio.sleep(PROGRESS_SECONDS)
                print_count()

        async def say_limit() -> None:
            while (words := notice.words(sink.metrics())) is None:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(RATE_CHECK_SECONDS)
            print_note(words)

        printing, saying = asyncio.ensure_future(keep_printing()), asyncio.ensure_future(say_limit())
        try:
            yield
        finally:
            printing.cancel()
            try:
                await sink.flush()
            finally:
                saying.cancel()
                print_count()


class Pace:
    """Lets records go one by one, `rate` of them a second. Time lost to waiting is caught up on for one second at most."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._interval = 1 / rate
        self._clock = clock
        self._next = clock.monotonic()

    async def wait_for_turn(self) -> None:
        """Return when the next record may go."""
        now = self._clock.monotonic()
        self._next = max(self._next, now - 1.0)
        if self._next > now:
            await asyncio.sleep(self._next - now)
        self._next += self._interval
