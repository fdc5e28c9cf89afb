"""The table that `recordpublisher lag` prints."""

from __future__ import annotations

from collections.abc import Sequence

from recordpublisher.plugins.lag.shard_lag import ShardLag

from ..output import duration, rate, styled, table, yes_no

HEAD = ("SHARD", "SUBTASK", "LAG", "UNREAD", "IDLE", "LOST IN", "")
GROUP_HEAD = ("SHARD", "WORKER", *HEAD[2:])
TIP_HEAD = ("SHARD", "LAG", "IDLE", "RECORDS/S", "BYTES/S", "NEWEST", "SEQUENCE NUMBER")


def lag_table(lags: Sequence[ShardLag], has_positions: bool) -> str:
    """One line for each shard; without the job's positions, what arrives in it."""
    if not has_positions:
        return table(TIP_HEAD, [*map(_tip_row, lags)])
    is_group = any(lag.worker is not None for lag in lags)
    return table(GROUP_HEAD if is_group else HEAD, [*map(_row, lags)])


def _row(lag: ShardLag) -> tuple[str, ...]:
    subtask = "-" if lag.subtask is None else str(lag.subtask)
    reader = lag.worker or subtask
    alarm = styled("ALARM", "red") if lag.alarm else ""
    return (lag.shard, reader, duration(lag.lag_ms), yes_no(lag.unread), _idle(lag), duration(lag.loss_ms), alarm)


def _tip_row(lag: ShardLag) -> tuple[str, ...]:
    rates = (rate(lag.records_per_second), rate(lag.bytes_per_second))
    return (lag.shard, "-", yes_no(lag.is_idle), *rates, duration(lag.tip_age_ms), lag.tip or "-")


def _idle(lag: ShardLag) -> str:
    return duration(lag.idle_ms) if lag.is_idle and lag.idle_ms is not None else yes_no(lag.is_idle)
