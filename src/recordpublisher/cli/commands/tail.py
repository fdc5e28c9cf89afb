"""`recordpublisher tail`: records of streams as JSON lines, or in a file of columns."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from recordpublisher.consumer.event_time import check_times, timestamp_assigner_for
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.deserializers.decompression import decompressor_for
from recordpublisher.plugins.host.build_from_properties import (
    check_properties,
    lists_its_shards,
    reads_a_queue,
    shard_publisher_names,
)
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.plugins.runtime.stream_and_consume import without_job_identity
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import (
    START_FORMS,
    age_ms,
    named_start,
    passed_initial_position,
    refuse_future,
    time_ms,
    with_oldest_start,
)
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.job_properties import (
    COMPRESSION,
    DESERIALIZER,
    ON_BAD_RECORD,
    SCHEMA,
    TIMESTAMP_FIELD,
    WATERMARK_STRATEGY,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION, RECORD_PUBLISHER
from recordpublisher.publishers.properties.sink_properties import PARTITIONS
from recordpublisher.publishers.properties.times_and_sizes import is_sequence_number
from recordpublisher.publishers.records import Record, RecordBatch
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.user_code import describe_error

from ..execution import print_note, run_to_end, run_until_signal
from ..options import StreamNames, StreamProperties, with_properties
from ..record_file import RecordFile, RecordFormat, record_file
from ..shard_tree import known_shard

RATE_SECONDS = 10.0
SILENCE_SECONDS = 15.0
_FROM = (
    "TRIM_HORIZON (or earliest), LATEST, an age (1h), a time (2026-11-22T06:00:00Z or epoch seconds), or with one --shard a "
    "sequence number."
)
_START = f"a sequence number, {START_FORMS}"
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
        typer.Option("--shard", metavar="ID", help="Read only this shard; with one stream. May be repeated."),
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
    """Print the records of streams as JSON lines, or write them to a file. On a terminal, stderr shows how many are printed a second.

    Even with the properties of a job the command only polls: it stores no positions, joins no group and registers no consumer.
    It starts where --from, --since or flink.stream.initpos says. Without them: at the end with --follow, else at the oldest record.

    Example: recordpublisher tail orders --since 10m --grep '"status":"failed"' -n 10

    Example: recordpublisher tail orders --shard shardId-000000000000 --no-follow

    Example: recordpublisher tail orders --since 1h --no-follow --format parquet -o orders.parquet

    Example: recordpublisher tail orders --since 1h --no-follow --format schema
    """
    is_own = bool(shards) and lists_its_shards(properties)
    sequence_number = given_sequence_number(start, is_own=is_own)
    if shards and len(streams) > 1:
        raise ConfigurationError.needs("--shard", "exactly one stream", reason=f"{len(streams)} were given")
    if sequence_number is not None and len(shards or ()) != 1:
        reason = "a sequence number is a position in one shard"
        raise ConfigurationError.needs("--from", "exactly one --shard", value=start, reason=reason)
    begin = start_properties(start, since, time.time_ns() // 1_000_000, is_own=is_own)
    properties = without_job_identity(properties).merged(begin)  # This command stores no positions, and joins no group.
    if reads_a_queue(properties):
        valid, reason = shard_publisher_names(properties), "this command would take the records from the queue"
        raise ConfigurationError(RECORD_PUBLISHER.key, properties.as_given(RECORD_PUBLISHER), valid, reason=reason)
    end = None if until is None else time_ms("--until", until)
    bounds = Bounds(until_event_time=end, stop_at_tip=not follow or end is not None)
    patterns = compiled_pattern("--key", key), compiled_pattern("--grep", grep)
    reading = RecordReading(properties)
    with record_file(kind, output, properties.value(PARTITIONS)) as written:
        printer = _Printer(reading, lambda record: matches_patterns(record, *patterns), limit, written)
        if shards:
            printing = _print_shards(streams[0], shards, sequence_number, reading, bounds, printer)
        else:
            printing = _print_streams(streams, reading, bounds, printer)
        # Without an end, Ctrl-C is the usual way to stop, and not an error.
        has_end = bounds.stop_at_tip or limit is not None
        (run_to_end if has_end else run_until_signal)(_with_rate(printing, printer, bounds.stop_at_tip))


class RecordReading:
    """Reads records for `tail` with a job's properties. A record that the job cannot use is shown as it was read.

    - `properties`: the properties of the job, without the properties that decode values.
    - `event_time`: returns the event time of a record; None if the event time is the arrival.
    """

    def __init__(self, job: Properties) -> None:
        """Read the job's properties. Raises: ConfigurationError if the compression or the event time cannot be used."""
        self._decompressor = decompressor_for(job)
        self._times_in = timestamp_assigner_for(job, None).times_in
        unused = (DESERIALIZER, SCHEMA, COMPRESSION, ON_BAD_RECORD, TIMESTAMP_FIELD, WATERMARK_STRATEGY)
        self.properties = job.merged(dict.fromkeys((declared.key for declared in unused), None))
        self.event_time: Callable[[Record], int] | None = None if self._times_in is None else self._event_time
        # The job reads the time from the decoded values of such payloads, which this command does not make.
        self._note_due = job.value(DESERIALIZER).lower() not in ("bytes", "text", "json")

    def decompress(self, record: Record) -> Record:
        """Return the record with its payload decompressed, or as it is if that is not possible."""
        if self._decompressor is None:
            return record
        with suppress(ValueError):
            return replace(record, data=self._decompressor.decompress([record.data])[0])
        return record

    def _event_time(self, record: Record) -> int:
        """Return the time in the field that the job's properties name (epoch ms), or the arrival if the field has no valid time."""
        with suppress(ValueError):
            if self._times_in is not None:
                times = self._times_in([self.decompress(record).data])
                check_times(times)
                return times[0]
        if self._note_due:
            self._note_due = False
            print_note(
                f"the event time of a payload that is not JSON is shown as its arrival: {TIMESTAMP_FIELD.key} names a field of decoded "
                "values, and this command decodes none"
            )
        return record.arrival_millis


def compiled_pattern(option: str, given: str | None) -> re.Pattern[str] | None:
    """Return a regular expression, or None if none is given. Raises: ConfigurationError, which names the option, if it is not valid."""
    try:
        return None if given is None else re.compile(given)
    except re.error as error:
        raise ConfigurationError(option, given, "a regular expression of Python", reason=str(error)) from error


def matches_patterns(record: Record, key: re.Pattern[str] | None, content: re.Pattern[str] | None) -> bool:
    """Return whether the partition key matches `key`, and the payload (as text) matches `content`. None matches everything."""
    return (key is None or key.search(record.partition_key or "") is not None) and (
        content is None or content.search(record.data.decode(errors="replace")) is not None
    )


async def _with_rate(printing: Coroutine[Any, Any, None], printer: _Printer, stop_at_tip: bool) -> None:
    async with printer.rate.shown(waits_for_tip=stop_at_tip):
        await printing


async def _print_streams(streams: list[str], reading: RecordReading, bounds: Bounds, printer: _Printer) -> None:
    from recordpublisher.plugins.runtime.stream_and_consume import stream  # Imported here because it is slow.

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
    properties = reading.properties
    check_properties(load_registry(), properties)
    start = passed_initial_position(
        with_oldest_start(properties) if bounds.stop_at_tip else properties, SystemClock().now_ms()
    )
    if sequence_number is not None:
        start = StartingPosition(PositionType.AT_SEQUENCE_NUMBER, sequence_number)
    reader = BoundedReader(properties, timestamp_assigner=reading.event_time)
    try:
        if sequence_number is not None:
            _check_order(reader, sequence_number)
        listed = await reader.list_shards(stream)
        starts = await Starts(start).pinned(lambda: reader.server_time_ms(stream))
        chosen = [known_shard(each, listed, "--shard", "a shard of the stream") for each in shard_ids]
        states = {shard: starts.of(shard) for shard in chosen}
        # A run with a limit for each shard ends with these shards. Without a limit it would wait for their children.
        bounds = dataclasses.replace(bounds, shard_limits=dict.fromkeys((shard.key for shard in states), sys.maxsize))
        with contextlib.suppress(_EnoughError):
            await reader.read(states, _PrintingSink(printer), bounds)
    finally:
        await reader.close()


def _check_order(reader: BoundedReader, sequence_number: str) -> None:
    """Check that the publisher can compare a sequence number with others. Raises: ConfigurationError if it cannot."""
    try:
        reader.order_of(sequence_number)
    except Exception as error:  # A plugin may raise any.
        reason = f"the publisher cannot order it: {describe_error(error)}"
        raise ConfigurationError("--from", sequence_number, _START, reason=reason) from error


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
    """Prints the records that the options choose. Owns the number of records that are still wanted. `rate` reports how many are printed."""

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
    """Reports on stderr how many records are printed a second, if stderr is a terminal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._count = 0

    def add(self, count: int) -> None:
        """Count records that were printed."""
        self._count += count

    @asynccontextmanager
    async def shown(self, *, waits_for_tip: bool = False) -> AsyncIterator[None]:
        """Report the rate every `RATE_SECONDS` while the block runs and records are printed, and the overall rate at its end.

        - `waits_for_tip`: whether the command ends when the shards are at their tips. If so, also print one line, at the first silence of
          `SILENCE_SECONDS`, that says what the command waits for.
        """
        telling = [asyncio.create_task(self._tell_silence())] if waits_for_tip else []
        try:
            if not sys.stderr.isatty():
                yield
                return
            telling.append(asyncio.create_task(self._say_again()))
            try:
                yield
            finally:
                self._say(self._count, self._clock.monotonic() - self._began)
        finally:
            for task in telling:
                task.cancel()

    async def _tell_silence(self) -> None:
        before = -1
        while self._count != before:
            before = self._count
            await asyncio.sleep(SILENCE_SECONDS)
        print_note(
            f"no record for {SILENCE_SECONDS:g} s. The command ends when each shard is at its tip, which the publisher reports by "
            "millis_behind_latest=0"
        )

    async def _say_again(self) -> None:
        before = 0
        while True:
            await asyncio.sleep(RATE_SECONDS)
            if self._count > before:
                self._say(self._count - before, RATE_SECONDS)
            before = self._count

    def _say(self, count: int, seconds: float) -> None:
        print_note(f"{counted(count, 'record')} in {seconds:.1f} s ({count / max(seconds, 0.001):,.1f} a second)")


def given_sequence_number(start: str | None, *, is_own: bool = False) -> str | None:
    """Return the value of `--from` if it is a sequence number, else None.

    - `is_own`: whether a plugin's publisher is read. Its sequence numbers may be small numbers or other text, so every value counts as one
      that is neither a time nor the name of a start position.
    """
    if start is None or is_sequence_number(start):
        return start
    if not is_own or not start.strip():
        return None
    # A number of any size may be the sequence number that an error has named, and reading another record instead would not be noticed.
    if start.isdecimal():
        return start
    try:
        named_start("--from", start)
    except ConfigurationError:
        return start
    return None


def start_properties(start: str | None, since: str | None, now_ms: int, *, is_own: bool = False) -> dict[str, str]:
    """Return the properties for `--from` or `--since`; empty if neither is given, or if `--from` is a sequence number.

    - `start`, `since`: the values of `--from` and `--since`.
    - `now_ms`: the current time (epoch ms).
    - `is_own`: whether a plugin's publisher is read. It decides which values are sequence numbers (`given_sequence_number`).

    Raises: ConfigurationError if both are given, if one is malformed, or if the time is in the future.
    """
    if since is not None:
        if start is not None:
            raise ConfigurationError.conflict("--since", "--from", reason="both say where to start")
        age_ms("--since", since)
        return {INITIAL_POSITION.key: since}
    if start is None or given_sequence_number(start, is_own=is_own) is not None:
        return {}
    at_ms = named_start("--from", start, _START).timestamp_ms
    if at_ms is not None:
        refuse_future("--from", at_ms, now_ms)
    return {INITIAL_POSITION.key: start}
