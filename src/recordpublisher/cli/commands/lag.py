"""`recordpublisher lag`: how far a job is behind a stream, and whether a shard needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from recordpublisher.fetcher.settings import checkpoint_interval_ms
from recordpublisher.plugins.host.build_from_properties import reads_a_queue, why_not_in_kinesis
from recordpublisher.plugins.lag.job_snapshot import ShardSnapshot
from recordpublisher.plugins.lag.job_state import JobStateReader, effect_of_no_positions
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import (
    ALARM_INTERVAL,
    CHECKPOINT_INTERVAL,
    SINK,
    STATE_URI,
)
from recordpublisher.publishers.properties.properties import Properties

from ..execution import ALARM, print_error, print_note, run_to_end, run_until_signal
from ..lag_view import print_tables, watch
from ..options import (
    JobOrStream,
    PropertiesFile,
    PropertyOptions,
    is_job,
    read_job_or_stream,
    with_properties,
)
from ..output import duration, echo, joined, json_text, rate, styled, table, yes_no
from ..stored_positions import FROM_ROWS, check_streams_of_kinesis, job_state_reader, open_probes

MIN_GRACE_SECONDS = 30.0
MIN_SILENCE_MS = 60_000
"""Only a last checkpoint that is older than this can mean that the job has stopped (ms)."""
WATCH_SECONDS = 5.0
HEAD = ("SHARD", "WORKER", "LAG", "UNREAD", "IDLE", "LOST IN", "")
TIP_HEAD = ("SHARD", "LAG", "IDLE", "RECORDS/S", "BYTES/S", "NEWEST", "SEQUENCE NUMBER")


@with_properties
def lag(
    job_or_stream: JobOrStream,
    options: PropertyOptions,
    file: PropertiesFile = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where the job stores its checkpoints; default: in its sink (sql, jsonl, parquet, delta), or at flink.state.uri.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit with 3 when the job does not read a shard that has records unread for flink.alarm.interval (default: 5 minutes).",
        ),
    ] = False,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="With --check: how long to wait for the position of an overdue shard to move. Default: 30, or three checkpoint intervals.",
        ),
    ] = None,
    watch_shards: Annotated[bool, typer.Option("--watch", help="Read again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="SECONDS", help="As --watch, with this time between two reads instead of 5 seconds."
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask the running job at the URL of its `run --dashboard`, for rates and held shards too.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each shard.")] = False,
) -> None:
    """Show the age of the oldest unread record of each shard, whether the shard is written to, and the time until records are lost.

    It takes at most two small reads for each shard. Without stored positions it shows what arrives: the
    sequence number and age of each shard's newest record, and the rates. What is not known is shown as -.

    Only Kinesis can be asked for its newest records. For a publisher that lists its streams itself, the command shows the stored
    position and watermark of each shard, and the age of the checkpoint.

    Example: recordpublisher lag orders

    Example: recordpublisher lag job.properties --check

    Example: recordpublisher lag orders --watch

    On a terminal --watch is one view that refreshes, the worst lag first. While the service or the store is unreachable it keeps the last
    values, and says how old they are.
    """
    seconds = interval or WATCH_SECONDS
    is_watching = watch_shards or interval is not None
    if (is_watching or live is not None) and (check or as_json):
        given = {"--watch": watch_shards, "--interval": interval is not None, "--live": live is not None}
        raise ConfigurationError.conflict(
            "--check" if check else "--json", *(name for name, is_set in given.items() if is_set)
        )
    streams, properties = read_job_or_stream(job_or_stream, file, options)
    if state is not None:
        properties = properties.merged({STATE_URI.key: state})
    tells = is_job(job_or_stream) or properties.is_set(SINK)  # A file without a sink only says how to reach a stream.
    if live is not None:
        from recordpublisher.plugins.dashboard.snapshots import HttpSnapshots

        of_job = HttpSnapshots(live, streams)
        if is_watching:
            run_until_signal(watch(of_job, SystemClock(), seconds))
        else:
            print_tables(run_to_end(of_job.snapshot()), SystemClock().now_ms(), None)
    elif is_watching:
        positions = _positions(properties, state is None, tells)
        run_until_signal(_watch_stored_job(properties, streams, positions, seconds))
    else:
        why_without_lag = why_not_in_kinesis(properties)
        if check:
            check_streams_of_kinesis(properties)
        grace_seconds = _grace_seconds(grace, properties) if check else None
        positions = _positions(properties, state is None, tells)
        shards = run_to_end(_read(properties, streams, positions, grace_seconds))
        if as_json:
            echo(joined(map(json_text, shards)))
        elif why_without_lag:
            print_note(
                f"{why_without_lag}: the lag is not known. `lag --live URL` asks the running job (run --dashboard)"
            )
            echo(position_table(shards, SystemClock().now_ms()))
        else:
            echo(shard_table(shards, positions is not None))
        if (silent_ms := stale_checkpoint_age_ms(shards, checkpoint_interval_ms(properties))) is not None:
            is_early = check and not any(shard.alarm for shard in shards)
            when = f". {_exits_later(properties)}" if is_early else ""
            print_note(
                f"no process of this job has stored a checkpoint for {duration(silent_ms)}, although records wait. Either no process "
                f"runs, or its state store or its sink does not respond{when}"
            )
        _report_alarms(shards, check)


def _grace_seconds(given: float | None, properties: Properties) -> float:
    """Return how long --check waits for the position of an overdue shard to move (seconds): `given`, or a default.

    Raises: ConfigurationError if the alarms are off, or if the job stores no positions while it runs.
    """
    if properties.value(ALARM_INTERVAL) < 0:
        reason = f"--check exits with {ALARM} once records have waited for this interval; -1 turns alarms off"
        raise ConfigurationError(ALARM_INTERVAL.key, -1, "a duration such as 5m", reason=reason)
    if checkpoint_interval_ms(properties) < 0:
        reason = "the job stores its positions only when it stops, so --check could not tell whether it reads"
        raise ConfigurationError(CHECKPOINT_INTERVAL.key, -1, "a duration such as 10s", reason=reason)
    return max(MIN_GRACE_SECONDS, 3 * checkpoint_interval_ms(properties) / 1000) if given is None else given


def _exits_later(properties: Properties) -> str:
    interval = ALARM_INTERVAL
    return f"--check exits with {ALARM} once the records have waited for {duration(properties.value(interval))} ({interval.key})"


def _positions(properties: Properties, use_sink: bool, is_job: bool) -> JobStateReader | None:
    positions = None if reads_a_queue(properties) else job_state_reader(properties, use_sink)
    if positions is None:
        check_streams_of_kinesis(properties)
    if positions is None and is_job:
        why = (
            effect_of_no_positions(None, properties)
            or "the length of a queue is not known: ask the running job with --live"
        )
        print_note(f"{why}. The table shows what arrives in each shard")
    return positions


async def _read(
    properties: Properties, streams: Sequence[str], positions: JobStateReader | None, grace_seconds: float | None
) -> list[ShardSnapshot]:
    """Return a snapshot of each shard.

    `grace_seconds`: if it is given, set the alarm of each overdue shard whose position does not move in this time.

    Raises: KinesisError if a call fails; StateError if the positions cannot be read; ConfigurationError if `grace_seconds` is given without
    `positions`.
    """
    if grace_seconds is not None and positions is None:
        reason = "give --state, or the properties of a job that stores its positions"
        raise ConfigurationError.needs("--check", "stored positions", reason=reason)
    shards: list[ShardSnapshot] = []
    async with open_probes(properties, streams, positions) as probes:
        for probe in probes:
            shards += await (probe.read() if grace_seconds is None else probe.read_with_alarms(grace_seconds))
    if positions is not None and positions.is_from_rows:
        print_note(FROM_ROWS)
    return shards


async def _watch_stored_job(
    properties: Properties, streams: Sequence[str], positions: JobStateReader | None, interval_seconds: float
) -> None:
    """Show the job again and again until cancelled. Raises: KinesisError or StateError if the first reading fails."""
    from recordpublisher.plugins.dashboard.snapshots import JoinedSnapshots, StoredSnapshots

    clock = SystemClock()
    async with open_probes(properties, streams, positions) as probes:
        snapshots = [StoredSnapshots(probe, clock) for probe in probes]
        await watch(JoinedSnapshots(snapshots, clock, 0.0), clock, interval_seconds)


def shard_table(shards: Sequence[ShardSnapshot], has_positions: bool) -> str:
    """Return a table with one line for each shard. Without the job's positions, it shows what arrives in the shard."""
    is_one_stream = len({shard.stream for shard in shards}) < 2
    names = [
        (shard.shard if is_one_stream else f"{shard.stream}/{shard.shard}") + (" (closed)" if shard.is_closed else "")
        for shard in shards
    ]
    if not has_positions:
        return table(TIP_HEAD, [(name, *_tip_cells(shard)) for name, shard in zip(names, shards, strict=True)])
    return table(HEAD, [(name, *_lag_cells(shard)) for name, shard in zip(names, shards, strict=True)])


def stale_checkpoint_age_ms(shards: Sequence[ShardSnapshot], interval_ms: int) -> int | None:
    """Return the age of the last checkpoint (ms) if the job must have stopped or be stuck, else None.

    The age must exceed a minute and three times `interval_ms`, the checkpoint interval. Without unread records the result is None, because
    a running job then need not store its positions in each interval.
    """
    if interval_ms < 0:  # Nothing is stored before the stop.
        return None
    ages = [shard.checkpoint_age_ms for shard in shards if shard.checkpoint_age_ms is not None]
    waits = any(shard.unread for shard in shards)
    return min(ages) if waits and ages and min(ages) > max(MIN_SILENCE_MS, 3 * interval_ms) else None


def _lag_cells(shard: ShardSnapshot) -> tuple[str, ...]:
    reader = shard.worker or "-"
    idle = duration(shard.idle_ms) if shard.is_idle and shard.idle_ms is not None else yes_no(shard.is_idle)
    alarm = styled("ALARM", "red") if shard.alarm else ""
    return (reader, duration(shard.lag_ms), yes_no(shard.unread), idle, duration(shard.loss_ms), alarm)


def _tip_cells(shard: ShardSnapshot) -> tuple[str, ...]:
    rates = (rate(shard.records_per_second), rate(shard.bytes_per_second))
    return ("-", yes_no(shard.is_idle), *rates, duration(shard.tip_age_ms), shard.tip or "-")


def _report_alarms(shards: Sequence[ShardSnapshot], check: bool) -> None:
    alarms = [shard for shard in shards if shard.alarm]
    for shard in alarms:
        print_error(f"ALARM {shard.shard}: {shard.alarm}")
    if check and alarms:
        raise typer.Exit(ALARM)


POSITION_HEAD = ("SHARD", "WORKER", "POSITION", "WATERMARK", "STORED")


def position_table(shards: Sequence[ShardSnapshot], now_ms: int) -> str:
    """Return a table with the stored position of each shard, and how old its watermark and its checkpoint are."""
    rows = [
        (
            f"{shard.stream}/{shard.shard}",
            shard.worker or "-",
            shard.position or "-",
            duration(None if shard.watermark is None else now_ms - shard.watermark),
            duration(shard.checkpoint_age_ms),
        )
        for shard in shards
    ]
    return table(POSITION_HEAD, rows)
