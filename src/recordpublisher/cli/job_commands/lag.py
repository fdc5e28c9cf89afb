"""`recordpublisher lag`: how far a job is behind a stream, and whether a shard needs attention."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.plugins.lag.shard_lag import ShardLag
from recordpublisher.plugins.lag.stored_positions import PositionsReader, SinkPositions, stores_positions
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import ALARM_INTERVAL, CHECKPOINT_INTERVAL, SINK, STATE_URI

from ..execution import ALARM, print_error, run_until_signal
from ..log_format import LogFormat, LogFormatOption
from ..options import Endpoint, Pairs, Profile, PropertiesFile, Region, read_properties
from ..output import json_text, styled, table
from ..verbosity import Debug, Verbose

MIN_GRACE_SECONDS = 30.0


def lag(
    stream: Annotated[str, typer.Argument(help="The stream's name or ARN.")],
    pairs: Pairs = None,
    file: PropertiesFile = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where the job stores its checkpoints; default: in its sink (sql, jsonl, parquet), or at flink.state.uri.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when the job does not read a shard that has unread records.")
    ] = False,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="With --check: how long to wait for the position of an overdue shard to move. Default: 30, or three checkpoint intervals.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each shard.")] = False,
    region: Region = None,
    endpoint: Endpoint = None,
    profile: Profile = None,
    verbose: Verbose = False,
    debug: Debug = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Show the age of the oldest unread record of each shard, whether the shard is written to, and the time until records are lost.

    It takes at most two small reads for each shard, however far behind it is. Without stored positions it shows what arrives: the
    sequence number and age of each shard's newest record, and the rates. What is not known is shown as -.

    Example: recordpublisher lag orders

    Example: recordpublisher lag orders --state state --check
    """
    properties = read_properties(file, pairs, region, endpoint, profile)
    if state is not None:
        properties = properties.merged({STATE_URI.key: state})
    if check and grace is None:
        grace = max(MIN_GRACE_SECONDS, 3 * properties.value(CHECKPOINT_INTERVAL) / 1000)
    positions = _positions(properties, use_sink=state is None)
    if check and positions is None:
        valid = "together with --state, or with the properties of a job that stores its positions"
        raise ConfigurationError("--check", None, valid, reason="it needs the stored positions")
    lags = run_until_signal(_read_lags(stream, properties, positions, grace if check else None)) or []
    if as_json:
        typer.echo("\n".join(json_text(asdict(each)) for each in lags))
    else:
        typer.echo(table(TIP_HEAD, [*map(_tip_row, lags)]) if positions is None else table(HEAD, [*map(_row, lags)]))
    alarms = [each for each in lags if each.alarm]
    for each in alarms:
        print_error(f"ALARM {each.shard}: {each.alarm}")
    if check and alarms:
        raise typer.Exit(ALARM)


def _positions(properties: Properties, use_sink: bool) -> PositionsReader | None:
    """Where the job's positions are: in its sink, if that stores them, else in its state store; None without both."""
    from recordpublisher.plugins.host.build_from_properties import build_sink, build_state_store
    from recordpublisher.plugins.host.manager import load_registry

    registry = load_registry()
    properties.check()
    sink = properties.value(SINK) if use_sink else None
    if sink is not None and stores_positions(registry.sinks.get(sink, SINK.key)):
        return SinkPositions(build_sink(registry, properties))
    _check_folder(properties)
    return build_state_store(registry, properties)


async def _read_lags(
    stream: str, properties: Properties, positions: PositionsReader | None, grace_seconds: float | None
) -> list[ShardLag]:
    from recordpublisher.plugins.lag.probe import LagProbe
    from recordpublisher.publishers.initial_position import initial_position  # with what follows: brings the AWS SDK
    from recordpublisher.publishers.kinesis import KinesisClient
    from recordpublisher.publishers.properties.table import GETRECORDS_RETRIES

    async with KinesisClient(properties, [stream]) as service:
        probe = LagProbe(
            service=service,
            stream=stream,
            store=positions,
            start=initial_position(properties),
            interval_ms=properties.value(ALARM_INTERVAL),
            policy=GETRECORDS_RETRIES.policy(properties),
        )
        try:
            return await (probe.read_lags() if grace_seconds is None else probe.read_lags_and_alarms(grace_seconds))
        finally:
            if positions is not None:
                await positions.close()


def _check_folder(properties: Properties) -> None:
    """Refuse a folder that does not exist: opening the store would create it, also for a mistyped path."""
    uri = properties.value(STATE_URI) or ""
    path = uri.removeprefix("file://")
    if uri and "://" not in path and not Path(path).is_dir():
        raise ConfigurationError(
            STATE_URI.key, uri, "an existing folder with a job's state", reason="it does not exist"
        )


HEAD = ("SHARD", "SUBTASK", "LAG", "UNREAD", "IDLE", "LOST IN", "")
TIP_HEAD = ("SHARD", "LAG", "IDLE", "RECORDS/S", "BYTES/S", "NEWEST", "SEQUENCE NUMBER")
UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def _row(lag: ShardLag) -> tuple[str, ...]:
    subtask = "-" if lag.subtask is None else str(lag.subtask)
    alarm = styled("ALARM", "red") if lag.alarm else ""
    return (lag.shard, subtask, duration(lag.lag_ms), _yes_no(lag.unread), _idle(lag), duration(lag.loss_ms), alarm)


def _tip_row(lag: ShardLag) -> tuple[str, ...]:
    rates = (_rate(lag.records_per_second), _rate(lag.bytes_per_second))
    return (lag.shard, "-", _yes_no(lag.is_idle), *rates, duration(lag.tip_age_ms), lag.tip or "-")


def _rate(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def _idle(lag: ShardLag) -> str:
    return duration(lag.idle_ms) if lag.is_idle and lag.idle_ms is not None else _yes_no(lag.is_idle)


def _yes_no(flag: bool | None) -> str:
    return "-" if flag is None else "yes" if flag else "no"


def duration(ms: int | None) -> str:
    """The largest unit that fits, with one decimal: `4.2 h`."""
    if ms is None:
        return "-"
    for name, size in UNITS:
        if abs(ms) >= size:
            return f"{ms / size:.1f} {name}"
    return "0" if ms == 0 else f"{ms} ms"
