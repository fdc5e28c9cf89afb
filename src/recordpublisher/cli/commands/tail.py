"""`recordpublisher tail`: a stream's records as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import Annotated

import msgspec
import typer

from recordpublisher.plugins.sinks.files.jsonl import as_json
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from ..execution import run_until_signal
from ..options import Pairs, PropertiesFile, read_properties
from ..verbosity import Debug, Verbose


def tail(
    stream: Annotated[str, typer.Argument(help="The stream's name or ARN.")],
    pairs: Pairs = None,
    file: PropertiesFile = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow",
            help="Wait for new records, or read from the oldest record and stop at the tip.",
        ),
    ] = True,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Print a stream's records as JSON lines.

    Starts where flink.stream.initpos says; when it is not set: at the end with --follow, at the oldest record with --no-follow.
    """
    properties = read_properties(file, pairs)
    run_until_signal(_print_records(stream, properties, limit, stop_at_tip=not follow))


async def _print_records(stream: str, properties: Properties, limit: int | None, stop_at_tip: bool) -> None:
    # imported here, since it imports the AWS SDK, which other commands do without
    from recordpublisher.plugins.runtime.streaming import stream as read_stream

    left = sys.maxsize if limit is None else limit
    async with aclosing(read_stream([stream], properties, stop_at_tip=stop_at_tip)) as batches:
        async for batch in batches:
            taken = batch.slice(0, left)
            # in a thread: a reader that stops (`| less`) must not stop the loop
            await asyncio.to_thread(_print, taken)
            left -= len(taken)
            if not left:
                break


def _print(batch: RecordBatch) -> None:
    out = sys.stdout.buffer
    out.writelines(msgspec.json.encode(as_json(record)) + b"\n" for record in batch)
    out.flush()
