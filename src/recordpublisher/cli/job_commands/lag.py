"""`recordpublisher lag`: how far a job is behind a stream, and whether a shard needs attention."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.table import CHECKPOINT_INTERVAL, STATE_URI

from ..execution import ALARM, print_error, run_to_end, run_until_signal
from ..options import Endpoint, Pairs, Profile, PropertiesFile, Region, read_properties
from ..output import json_text
from .lag_reading import positions_of, read_lags, watch_lags, watch_live
from .lag_table import lag_table

MIN_GRACE_SECONDS = 30.0
WATCH_SECONDS = 5.0


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
    watch: Annotated[bool, typer.Option("--watch", help="Read again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="The same, after this time instead of 5 seconds."),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Watch a running job by what its `run --dashboard` serves: rates and held shards too."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each shard.")] = False,
    region: Region = None,
    endpoint: Endpoint = None,
    profile: Profile = None,
) -> None:
    """Show the age of the oldest unread record of each shard, whether the shard is written to, and the time until records are lost.

    It takes at most two small reads for each shard, however far behind it is. Without stored positions it shows what arrives: the
    sequence number and age of each shard's newest record, and the rates. What is not known is shown as -.

    Example: recordpublisher lag orders

    Example: recordpublisher lag orders --state state --check

    Example: recordpublisher lag orders --watch

    On a terminal --watch is one view that refreshes, the worst lag first; elsewhere a table after each reading. While the service or
    the store cannot be reached it keeps the last values, and says how old they are.
    """
    seconds = interval or WATCH_SECONDS
    is_watching = watch or interval is not None or live is not None
    if is_watching and (check or as_json):
        raise ConfigurationError("--check" if check else "--json", True, "without --watch")
    if live is not None:
        run_until_signal(watch_live(live, stream, seconds))
        return
    properties = read_properties(file, pairs, region, endpoint, profile)
    if state is not None:
        properties = properties.merged({STATE_URI.key: state})
    if check and grace is None:
        grace = max(MIN_GRACE_SECONDS, 3 * properties.value(CHECKPOINT_INTERVAL) / 1000)
    positions = positions_of(properties, use_sink=state is None)
    if check and positions is None:
        valid = "together with --state, or with the properties of a job that stores its positions"
        raise ConfigurationError("--check", None, valid, reason="it needs the stored positions")
    if is_watching:
        run_until_signal(watch_lags(stream, properties, positions, seconds))
        return
    lags = run_to_end(read_lags(stream, properties, positions, grace if check else None))
    if as_json:
        typer.echo("\n".join(json_text(asdict(each)) for each in lags))
    else:
        typer.echo(lag_table(lags, has_positions=positions is not None))
    alarms = [each for each in lags if each.alarm]
    for each in alarms:
        print_error(f"ALARM {each.shard}: {each.alarm}")
    if check and alarms:
        raise typer.Exit(ALARM)
