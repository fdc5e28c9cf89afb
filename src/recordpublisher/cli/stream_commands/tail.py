"""`recordpublisher tail`: records of streams as JSON lines, or in a file of columns."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from recordpublisher.fetcher.checkpoints.starts import Starts
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.host.source_kind import lists_its_streams, reads_a_queue, shards_instead_of_queue
from recordpublisher.plugins.runtime.looks import as_look
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import (
    A_START,
    age_ms,
    from_the_oldest,
    named_start,
    passed_initial_position,
    refuse_future,
    time_ms,
)
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.groups.reading import INITIAL_POSITION, RECORD_PUBLISHER
from recordpublisher.publishers.properties.groups.sinks import PARTITIONS
from recordpublisher.publishers.properties.times import is_sequence_number
from recordpublisher.publishers.records import Record, RecordBatch

from ..execution import print_note, run_to_end, run_until_signal
from ..options import StreamNames, StreamProperties, with_properties
from ..printed_records import RecordFile, RecordFormat, RecordReading, is_chosen, pattern, record_file
from ..shard_tree import known_shard

RATE_SECONDS = 10.0
_TIMES_FROM = 1_000_000_000
"""Epoch seconds of 2001. No stream has a record that is older, so a smaller number is not a time."""
_FROM = (
    "TRIM_HORIZON (or earliest), LATEST, an age (1h), a time (2026-11-22T06:00:00Z or epoch seconds), or with one --shard a "
    "sequence number."
)
_UNTIL = "Stop at records from this time on (by default their arrival time), or at the tip. Implies --no-follow."


@with_properties
def tail(
    streams: StreamNames,
    properties: StreamProperties,
    start: Annotated[str | None, typer.Option("--from", metavar="START", help=_FROM)] = None,
    since: Annotated[str | None, typer.Option(metavar="AGE", help="Start this long ago: 30s, 10m, 2h, 1d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help=_UNTIL)] = None,
    shards: Annotated[
        list[str] | None,
        typer.Option("--shard", metavar="ID", help="Read only this shard of the one stream. May be repeated."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Print only records whose partition key matches.")
    ] = None,
    grep: Annotated[str | None, typer.Option(metavar="REGEX", help="Print only records whose payload matches.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", help="Wait for new records, or read from the oldest record and stop at the tip."
        ),
    ] = True,
    kind: Annotated[
        RecordFormat,
        typer.Option(
            "--format", help="Print JSON lines, the columns of a frame (extra arrow), or the schema of JSON objects."
        ),
    ] = RecordFormat.JSON,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of standard output."),
    ] = None,
) -> None:
    """Print the records of streams as JSON lines, or write them to a file. On a terminal, stderr shows how many records a second.

    The command never acts as the job whose properties it gets: it stores no positions, joins no group and registers no consumer, but polls.
    It starts where --from, --since or flink.stream.initpos says. Without them: at the end with --follow, else at the oldest record.

    Example: recordpublisher tail orders --since 10m --grep '"status":"failed"' -n 10

    Example: recordpublisher tail orders --shard shardId-000000000000 --no-follow

    Example: recordpublisher tail orders --since 1h --no-follow --format parquet -o orders.parquet

    Example: recordpublisher tail orders --since 1h --no-follow --format schema
    """
    is_short = bool(shards) and lists_its_streams(properties)
    sequence_number = given_sequence_number(start, is_short=is_short)
    if shards and len(streams) > 1:
        raise ConfigurationError.needs("--shard", "exactly one stream", reason=f"{len(streams)} were given")
    if sequence_number is not None and len(shards or ()) != 1:
        reason = "a sequence number is a position in one shard"
        raise ConfigurationError.needs("--from", "exactly one --shard", value=start, reason=reason)
    begin = start_properties(start, since, time.time_ns() // 1_000_000, is_short=is_short)
    properties = as_look(properties).merged(begin)  # A look stores no positions, and joins no group.
    if reads_a_queue(properties):
        valid, reason = shards_instead_of_queue(properties), "the shown records would be taken from the queue"
        raise ConfigurationError(RECORD_PUBLISHER.key, properties.as_given(RECORD_PUBLISHER), valid, reason=reason)
    end = None if until is None else time_ms("--until", until)
    bounds = Bounds(until_event_time=end, stop_at_tip=not follow or end is not None)
    patterns = pattern("--key", key), pattern("--grep", grep)
    reading = RecordReading(properties)
    with record_file(kind, output, properties.value(PARTITIONS)) as written:
        printer = _Printer(reading, lambda record: is_chosen(record, *patterns), limit, written)
        if shards:
            printing = _print_shards(streams[0], shards, sequence_number, reading, bounds, printer)
        else:
            printing = _print_streams(streams, reading, bounds, printer)
        # Without an end, Ctrl-C is the usual way to stop, and not an error.
        has_end = bounds.stop_at_tip or limit is not None
        (run_to_end if has_end else run_until_signal)(_with_rate(printing, printer))


async def _with_rate(printing: Coroutine[Any, Any, None], printer: _Printer) -> None:
    async with printer.rate.shown():
        await printing


async def _print_streams(streams: list[str], reading: RecordReading, bounds: Bounds, printer: _Printer) -> None:
    from recordpublisher.plugins.runtime.streaming import stream  # Imported here because it is slow.

    records = stream(
        streams,
        reading.properties,
        timestamp_assigner=reading.event_time,
        stop_at_tip=bounds.stop_at_tip,
        until_event_time=bounds.until_event_time,
    )
    async with aclosing(records) as batches:
        async for batch in batches:
            if not await printer.print(batch):
                break


async def _print_shards(
    stream: str,
    shard_ids: list[str],
    sequence_number: str | None,
    reading: RecordReading,
    bounds: Bounds,
    printer: _Printer,
) -> None:
    """Print records of chosen shards, without their parents and children, until a bound is met or the shards end.

    - `sequence_number`: where to start; None for where `flink.stream.initpos` says.

    Raises: ConfigurationError if a shard is unknown; the errors of `rp.stream`.
    """
    from recordpublisher.plugins.runtime.bounded_reader import BoundedReader  # Imported here because it is slow.

    properties = reading.properties
    properties.check()
    start = passed_initial_position(
        from_the_oldest(properties) if bounds.stop_at_tip else properties, SystemClock().now_ms()
    )
    if sequence_number is not None:
        start = StartingPosition(PositionType.AT_SEQUENCE_NUMBER, sequence_number)
    reader = BoundedReader(properties, timestamp_assigner=reading.event_time)
    try:
        listed = await reader.list_shards(stream)
        starts = await Starts(start).pinned(lambda: reader.server_time_ms(stream))
        chosen = [known_shard(each, listed, "--shard", "a shard of the stream") for each in shard_ids]
        states = {shard: starts.of(shard) for shard in chosen}
        # A run with a limit for each shard ends with these shards. Without a limit it would wait for their children.
        bounds = replace(bounds, shard_limits=dict.fromkeys((shard.key for shard in states), sys.maxsize))
        with contextlib.suppress(_EnoughError):
            await reader.read(states, _PrintingSink(printer), bounds)
    finally:
        await reader.close()


class _PrintingSink(Sink):
    """Prints batches. Raises `_EnoughError` to end the reading when no more records are wanted."""

    def __init__(self, printer: _Printer) -> None:
        self._printer = printer

    async def write(self, batch: RecordBatch) -> None:
        if not await self._printer.print(batch):
            raise _EnoughError


class _EnoughError(Exception):
    """Raised by the sink when no more batches are wanted."""


class _Printer:
    """Prints the chosen records. Owns the number of records that are still wanted, and `rate`, which reports their rate."""

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
        for record in islice(filter(self._is_printed, map(self._reading.decompress, batch)), self._left):
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

    - `is_short`: whether a number that is too small for the time of a record counts as a sequence number, as it may in a plugin's shards.
    """
    is_given = start is not None and (
        is_sequence_number(start) or (is_short and start.isdecimal() and int(start) < _TIMES_FROM)
    )
    return start if is_given else None


def start_properties(start: str | None, since: str | None, now_ms: int, *, is_short: bool = False) -> dict[str, str]:
    """Return the properties for `--from` or `--since`. Return none if neither is given, or if `--from` is a sequence number.

    Raises: ConfigurationError if both are given, if one is malformed, or if the time is in the future.
    """
    if since is not None:
        if start is not None:
            raise ConfigurationError.conflict("--since", "--from", reason="both say where to start")
        age_ms("--since", since)
        return {INITIAL_POSITION.key: since}
    if start is None or given_sequence_number(start, is_short=is_short) is not None:
        return {}
    at_ms = named_start("--from", start, f"a sequence number, {A_START}").timestamp_ms
    if at_ms is not None:
        refuse_future("--from", at_ms, now_ms)
    return {INITIAL_POSITION.key: start}
