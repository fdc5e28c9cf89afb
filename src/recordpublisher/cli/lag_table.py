"""The table of `recordpublisher lag`, for people."""

from __future__ import annotations

from collections.abc import Sequence

from recordpublisher.plugins.lag.shard_lag import ShardLag

HEAD = ("SHARD", "SUBTASK", "LAG", "UNREAD", "IDLE", "LOST IN", "")
UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def table(lags: Sequence[ShardLag]) -> str:
    """One line for each shard, columns aligned."""
    rows = [HEAD, *map(_row, lags)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(lag: ShardLag) -> tuple[str, ...]:
    subtask = "-" if lag.subtask is None else str(lag.subtask)
    alarm = "ALARM" if lag.alarm else ""
    return (lag.shard, subtask, duration(lag.lag_ms), _yes_no(lag.unread), _idle(lag), duration(lag.loss_ms), alarm)


def _idle(lag: ShardLag) -> str:
    return f"{duration(lag.idle_ms)}" if lag.is_idle and lag.idle_ms is not None else _yes_no(lag.is_idle)


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
