"""`recordpublisher tail`: records of streams as JSON lines."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from itertools import islice
from typing import Annotated

import typer

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record, RecordBatch

from ..execution import run_until_signal
from ..options import Endpoint, Pairs, Profile, PropertiesFile, Region, read_properties
from ..printed_records import is_chosen, json_line, pattern
from ..time_range import start_properties, time_ms
from ..verbosity import Debug, Verbose

_FROM = "TRIM_HORIZON, LATEST, or a time: 2026-11-22T06:00:00Z or epoch seconds."
_UNTIL = "Stop at records from this time on (by default their arrival) or at the tip; so without --follow."


def tail(
    streams: Annotated[list[str], typer.Argument(help="Names or ARNs of streams.", metavar="STREAM")],
    start: Annotated[str | None, typer.Option("--from", metavar="START", help=_FROM)] = None,
    since: Annotated[str | None, typer.Option(metavar="AGE", help="Start this long ago: 30s, 10m, 2h, 1d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help=_UNTIL)] = None,
    key: Annotated[str | None, typer.Option(metavar="REGEX", help="Only records with such a partition key.")] = None,
    grep: Annotated[str | None, typer.Option(metavar="REGEX", help="Only records with such a payload.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow",
            help="Wait for new records, or read from the oldest record and stop at the tip.",
        ),
    ] = True,
    pairs: Pairs = None,
    file: PropertiesFile = None,
    region: Region = None,
    endpoint: Endpoint = None,
    profile: Profile = None,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Print the records of streams as JSON lines.

    Starts where --from, --since or flink.stream.initpos says; without them at the end with --follow, else at the oldest record.

    Example: recordpublisher tail orders --since 10m --grep '"status":"failed"' -n 10
    """
    properties = read_properties(file, pairs, region, endpoint, profile)
    properties = properties.merged(start_properties(start, since, time.time_ns() // 1_000_000))
    end = None if until is None else time_ms("--until", until)
    patterns = pattern("--key", key), pattern("--grep", grep)

    def is_printed(record: Record) -> bool:
        return is_chosen(record, *patterns)

    run_until_signal(
        _print_records(streams, properties, is_printed, limit, stop_at_tip=not follow or end is not None, until_ms=end)
    )


async def _print_records(
    streams: list[str],
    properties: Properties,
    is_printed: Callable[[Record], bool],
    limit: int | None,
    stop_at_tip: bool,
    until_ms: int | None,
) -> None:
    # imported here, since it imports the AWS SDK, which other commands do without
    from recordpublisher.plugins.runtime.streaming import stream

    left = sys.maxsize if limit is None else limit
    reading = stream(streams, properties, stop_at_tip=stop_at_tip, until_event_time=until_ms)
    async with aclosing(reading) as batches:
        async for batch in batches:
            # in a thread: a reader that stops (`| less`) must not stop the loop
            left -= await asyncio.to_thread(_print, batch, is_printed, left)
            if not left:
                break


def _print(batch: RecordBatch, is_printed: Callable[[Record], bool], most: int) -> int:
    """Print the chosen records, `most` of them at most; returns how many."""
    lines = [json_line(record) for record in islice(filter(is_printed, batch), most)]
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()
    return len(lines)
