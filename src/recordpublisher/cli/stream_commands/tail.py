"""`recordpublisher tail`: records of streams as JSON lines, or in a file of columns."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.plugins.host.source_kind import lists_its_streams, reads_a_queue, shards_instead_of_queue
from recordpublisher.plugins.runtime.looks import as_look
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import A_START, age_ms, named_start, refuse_future, time_ms
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.reading import INITIAL_POSITION, RECORD_PUBLISHER
from recordpublisher.publishers.properties.times import is_sequence_number
from recordpublisher.publishers.records import Record, RecordBatch

from ..execution import print_note, run_to_end, run_until_signal
from ..options import StreamNames, StreamProperties, with_properties
from ..printed_records import RecordReading, is_chosen, pattern
from ..record_files import RecordFile, RecordFormat, record_file

RATE_SECONDS = 10.0
_TIMES_FROM = 1_000_000_000
"""Epoch seconds of 2001. No stream has a record that is older, so a smaller number is not a time."""
_FROM = (
    "TRIM_HORIZON (or earliest), LATEST, an age (1h), a time (2026-11-22T06:00:00Z or epoch seconds), or with one --shard a "
    "sequence number."
)
_UNTIL = "Stop at records from this time on (by default their arrival) or at the tip; so without --follow."


@with_properties
def tail(
    streams: StreamNames,
    properties: StreamProperties,
    start: Annotated[str | None, typer.Option("--from", metavar="START", help=_FROM)] = None,
    since: Annotated[str | None, typer.Option(metavar="AGE", help="Start this long ago: 30s, 10m, 2h, 1d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help=_UNTIL)] = None,
    shards: Annotated[
        list[str] | None,
        typer.Option("--shard", metavar="ID", help="Only this shard of the one stream; may be repeated."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="REGEX", help="Only records with such a partition key.")] = None,
    grep: Annotated[str | None, typer.Option(metavar="REGEX", help="Only records with such a payload.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", help="Wait for new records, or read from the oldest record and stop at the tip."
        ),
    ] = True,
    kind: Annotated[
        RecordFormat,
        typer.Option("--format", help="JSON lines, the columns of a frame (extra arrow), or the schema of objects."),
    ] = RecordFormat.JSON,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output.")
    ] = None,
) -> None:
    """Print the records of streams as JSON lines, or write them to a file. A terminal shows on stderr how many a second.

    It never acts as the job whose properties it is given: it stores no positions, joins no group and registers no consumer (it polls).
    Starts where --from, --since or flink.stream.initpos says; without them at the end with --follow, else at the oldest record.

    Example: recordpublisher tail orders --since 10m --grep '"status":"failed"' -n 10

    Example: recordpublisher tail orders --shard shardId-000000000000 --no-follow

    Example: recordpublisher tail orders --since 1h --no-follow --format parquet -o orders.parquet

    Example: recordpublisher tail orders --since 1h --no-follow --format schema
    """
    is_short = bool(shards) and lists_its_streams(properties)
    sequence_number = given_sequence_number(start, is_short=is_short)
    if shards and len(streams) > 1:
        raise ConfigurationError("--shard", shards[0], "with one stream")
    if sequence_number is not None and len(shards or ()) != 1:
        raise ConfigurationError("--from", start, "with one --shard", reason="a sequence number is of one shard")
    begin = start_properties(start, since, time.time_ns() // 1_000_000, is_short=is_short)
    properties = as_look(properties).merged(begin)
    if reads_a_queue(properties):
        valid, reason = shards_instead_of_queue(properties), "what is shown would be taken from the queue"
        raise ConfigurationError(RECORD_PUBLISHER.key, properties.as_given(RECORD_PUBLISHER), valid, reason=reason)
    end = None if until is None else time_ms("--until", until)
    bounds = Bounds(until_event_time=end, stop_at_tip=not follow or end is not None)
    patterns = pattern("--key", key), pattern("--grep", grep)
    reading = RecordReading(properties)
    with record_file(kind, output) as written:
        printer = _Printer(reading, lambda record: is_chosen(record, *patterns), limit, written)
        if shards:
            printing = _print_shards(streams[0], shards, sequence_number, reading, bounds, printer)
        else:
            printing = _print_streams(streams, reading, bounds, printer)
        has_end = bounds.stop_at_tip or limit is not None
        (run_to_end if has_end else run_until_signal)(_with_rate(printing, printer))


async def _with_rate(printing: Coroutine[Any, Any, None], printer: _Printer) -> None:
    async with printer.rate.shown():
        await printing


async def _print_streams(streams: list[str], read: RecordReading, bounds: Bounds, printer: _Printer) -> None:
    # imported here, since it imports the AWS SDK, which other commands do without
    from recordpublisher.plugins.runtime.streaming import stream

    reading = stream(
        streams,
        read.properties,
        timestamp_assigner=read.event_time,
        stop_at_tip=bounds.stop_at_tip,
        until_event_time=bounds.until_event_time,
    )
    async with aclosing(reading) as batches:
        async for batch in batches:
            if not await printer.print(batch):
                break


async def _print_shards(
    stream: str,
    shards: list[str],
    sequence_number: str | None,
    read: RecordReading,
    bounds: Bounds,
    printer: _Printer,
) -> None:
    from ..chosen_shards import read_chosen_shards  # brings the AWS SDK

    await read_chosen_shards(stream, shards, sequence_number, read.properties, bounds, printer.print, read.event_time)


class _Printer:
    """Prints records. Owns how many are still wanted, and `rate`."""

    def __init__(
        self, reading: RecordReading, is_printed: Callable[[Record], bool], limit: int | None, file: RecordFile
    ) -> None:
        self._reading = reading
        self._file = file
        self._is_printed = is_printed
        self._left = sys.maxsize if limit is None else limit
        self.rate = PrintedRate(SystemClock())

    async def print(self, batch: RecordBatch) -> bool:
        """Print the chosen records of a batch. Return whether more records are wanted."""
        # Printing runs in a thread, because a reader that stops reading (`| less`) must not block the loop.
        count = await asyncio.to_thread(self._print, batch)
        self._left -= count
        self.rate.add(count)
        return self._left > 0

    def _print(self, batch: RecordBatch) -> int:
        """Print the chosen records, up to the wanted number, and return their number. One record is decompressed at a time."""
        count = 0
        for record in islice(filter(self._is_printed, map(self._reading.decompressed, batch)), self._left):
            self._file.write(record)
            count += 1
        self._file.flush()
        return count


class PrintedRate:
    """Reports on stderr how many records are printed a second, if stderr is a terminal.

    It owns the count of printed records, and the time when the command began to wait for them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._count = 0

    def add(self, count: int) -> None:
        """Count records that were printed."""
        self._count += count

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Report the rate while the block runs, once in `RATE_SECONDS` if there were new records, and at the end of the block."""
        if not sys.stderr.isatty():
            yield
            return
        saying = asyncio.create_task(self._say_again())
        try:
            yield
        finally:
            saying.cancel()
            self._say(self._count, self._clock.monotonic() - self._began)

    async def _say_again(self) -> None:
        before = 0
        while True:
            await asyncio.sleep(RATE_SECONDS)
            if self._count > before:
                self._say(self._count - before, RATE_SECONDS)
            before = self._count

    def _say(self, count: int, seconds: float) -> None:
        print_note(f"{counted(count, 'record')} in {seconds:.1f} s ({count / max(seconds, 0.001):,.1f} a second)")


def given_sequence_number(start: str | None, *, is_short: bool = False) -> str | None:
    """Return the value of `--from` if it is a sequence number, else None.

    - `is_short`: whether a number that is too small for the time of a record is one too, as it may be in a plugin's shards.
    """
    is_given = start is not None and (
        is_sequence_number(start) or (is_short and start.isdecimal() and int(start) < _TIMES_FROM)
    )
    return start if is_given else None


def start_properties(start: str | None, since: str | None, now_ms: int, *, is_short: bool = False) -> dict[str, str]:
    """Return the properties for `--from` or `--since`; none if neither is given, or if `--from` is a sequence number.

    Raises: ConfigurationError if both are given, if one is malformed, or if the time is in the future.
    """
    if since is not None:
        if start is not None:
            raise ConfigurationError("--since", since, "without --from", reason="both say where to start")
        age_ms("--since", since)
        return {INITIAL_POSITION.key: since}
    if start is None or given_sequence_number(start, is_short=is_short) is not None:
        return {}
    at_ms = named_start("--from", start, f"a sequence number, {A_START}").timestamp_ms
    if at_ms is not None:
        refuse_future("--from", at_ms, now_ms)
    return {INITIAL_POSITION.key: start}
