"""`recordpublisher put`: lines of files or stdin as records of a stream, each with its partition key."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import uuid4

import msgspec
import typer

from recordpublisher.consumer.deserialization import json_field_decoder
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.decoding_errors import UNDECODABLE
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import AGGREGATION_ENABLED, RATE_LIMIT
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.service_limits import WRITE_BYTES_PER_SECOND, WRITE_RECORDS_PER_SECOND

from ..execution import FAILED, print_error, print_note, run_to_end, run_until_signal
from ..options import ProducerProperties, StreamName, with_properties

if TYPE_CHECKING:
    from recordpublisher.plugins.sinks.kinesis.kinesis_sink import KinesisSink

BLOCK_BYTES = 1 << 16
MAX_LINE_BYTES = 16 * 2**20
"""The longest line (bytes). It is longer than any record (10 MiB, service limit), and bounds the memory for a file without line ends."""
PROGRESS_SECONDS = 10.0
RATE_CHECK_SECONDS = 1.0
SHOWN_BYTES = 80
MEBIBYTE = 2**20


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
    """Put each line of files or of standard input into a stream. Empty lines are skipped.

    The command waits while the stream does not accept more (1,000 records and 1 MiB a second for each shard), and repeats
    refused records for 15 minutes (flink.job.max.outage). It prints on stderr the count of records, and the number of each
    line that could not be put. If there is such a line, the exit code is 1. Ctrl-C ends the reading, and the lines that were
    read are put. The exit code is then 0 for standard input, and 130 for files.

    Example: recordpublisher put orders orders.jsonl --key-field customer --rate 500

    Example: recordpublisher put orders --key test --aggregate -
    """
    if key is not None and key_field is not None:
        raise ConfigurationError.conflict("--key-field", "--key", reason="both give the partition key")
    if aggregate:
        properties = properties.merged({AGGREGATION_ENABLED.key: "true"})
    putting = Putting(partition_key(key, key_field), rate)
    given = files or [Path("-")]
    # Ctrl-C is the usual end of standard input, so the exit code is 0. For a file it is an error, because the rest was not put.
    (run_until_signal if Path("-") in given else run_to_end)(putting.run(stream, properties, given))
    if putting.failed:
        raise typer.Exit(FAILED)


PartitionKey = Callable[[bytes], str]
"""Returns the partition key of a line. Raises: ValueError, which says why, if the line has none."""


class Putting:
    """Puts the lines of files into a stream as records. Owns the number of records that could not be put.

    - `key_of`: returns the partition key of a line.
    - `rate`: most records per second; None for as many as the stream accepts.
    """

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
        async with (
            sink,
            self._print_counts(sink, properties.value(RATE_LIMIT)),
            aclosing(blocks_of_lines(files)) as blocks,
        ):
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
    async def _print_counts(self, sink: KinesisSink, percent: int) -> AsyncIterator[None]:
        """Print count and rate on stderr every ten seconds, and at the end when every record is acknowledged.

        The first time that records wait for the rate limit, print a notice.
        """
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
            acknowledged, notice = 0, None
            while notice is None:
                await asyncio.sleep(RATE_CHECK_SECONDS)
                metrics = sink.metrics()
                notice = rate_notice(metrics, percent, acknowledged)
                acknowledged = metrics["numRecordsOut"]
            print_note(notice)

        printing, saying = asyncio.ensure_future(keep_printing()), asyncio.ensure_future(say_limit())
        try:
            yield
        finally:
            printing.cancel()
            try:
                await sink.flush()  # The last count includes the records that were still on their way.
            finally:
                saying.cancel()
                print_count()


def rate_notice(metrics: Mapping[str, int], percent: int, acknowledged_before: int) -> str | None:
    """Return a notice if the metrics of the sink show that records wait for the rate limit of their shards, else None.

    Records wait for the limit if more of them are unacknowledged than the shards accept in a second. If no record was acknowledged since
    the last call, the result is None, because then the service cannot be reached.

    - `percent`: the rate limit, as a share of what Kinesis accepts.
    - `acknowledged_before`: number of records that were acknowledged at the last call.
    """
    shards, waiting = metrics["shards"], metrics["outstandingRecordsCount"]
    records = shards * WRITE_RECORDS_PER_SECOND * percent / 100
    size = shards * WRITE_BYTES_PER_SECOND * percent / 100
    is_full = waiting > records or waiting * metrics["meanRecordBytes"] > size
    # If no record was acknowledged since the last call, the service cannot be reached, which the log reports.
    if not is_full or metrics["numRecordsOut"] == acknowledged_before:
        return None
    return (
        f"{counted(waiting, 'record')} wait for the rate limit: {counted(shards, 'open shard')} "
        f"{'gets' if shards == 1 else 'get'} at most {records:,.0f} records and {size / MEBIBYTE:,.1f} MiB a second "
        f"(RateLimit={percent}; 100 is what Kinesis takes, 1,000 records and 1 MiB a second for each shard)"
    )


class Pace:
    """Spreads records over time, `rate` of them a second. After a pause, at most one second's records are put at once."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._interval = 1 / rate
        self._clock = clock
        self._next = clock.monotonic()

    async def wait_for_turn(self) -> None:
        """Wait until the next record may be put."""
        now = self._clock.monotonic()
        self._next = max(self._next, now - 1.0)
        if self._next > now:
            await asyncio.sleep(self._next - now)
        self._next += self._interval


def partition_key(fixed: str | None, field: str | None) -> PartitionKey:
    """Return a function that gives the partition key of a line.

    The key is `fixed`, or the value of `field` in the JSON object of the line. If both are None, each record has a random key.
    """
    if fixed is not None:
        return lambda line: fixed
    if field is None:
        return lambda line: uuid4().hex
    decode = json_field_decoder("--key-field", field, Any, None)

    def key_of(line: bytes) -> str:
        try:
            value = decode(line).value
        except UNDECODABLE as error:
            raise ValueError(f"it is not a JSON object: {error}") from error
        if value is None:
            raise ValueError(f"it has no field {field!r}")
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return key_of


class Line(NamedTuple):
    """A line without its end, the file that has it, and its number in the file, from 1."""

    file: Path
    number: int
    data: bytes

    @property
    def place(self) -> str:
        """The place of the line for error messages, such as `line 3 of orders.jsonl`."""
        return f"line {self.number}" if str(self.file) == "-" else f"line {self.number} of {self.file}"


async def blocks_of_lines(files: Sequence[Path]) -> AsyncGenerator[list[Line]]:
    """Yield the lines of the files, in order, without empty lines. `-` is stdin. Each line is yielded as soon as it is complete.

    Raises: OSError if a file cannot be read; RecordPublisherError if a line is too long for any stream.
    """
    for file in files:
        number = 1
        with FileIO(sys.stdin.fileno(), closefd=False) if str(file) == "-" else FileIO(file) as opened:
            rest = bytearray()  # The buffer grows without copies, because a long line comes in many blocks.
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
                    raise RecordPublisherError(
                        f"{file}: line {number} has more than {MAX_LINE_BYTES:,} bytes, which no record can have"
                    )
            yield _non_empty(file, number, [bytes(rest)])


def _non_empty(file: Path, first: int, lines: list[bytes]) -> list[Line]:
    numbered = (Line(file, number, line.removesuffix(b"\r")) for number, line in enumerate(lines, first))
    return [line for line in numbered if line.data]


async def _read(opened: FileIO) -> bytes:
    """Read the bytes that the file has now. Return no bytes at the end of the file.

    A daemon thread reads them, because a silent terminal or pipe must not keep a stopped command running.
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
