"""The lines of `lag --watch`: totals, what alignment waits for, and a table of shards with the worst lag first."""

import textwrap
from datetime import UTC, datetime

from recordpublisher.plugins.lag.job_snapshot import CommitSnapshot, JobSnapshot, ShardSnapshot
from recordpublisher.publishers.log_fields import counted

from ..output import aligned, duration, printable, rate, yes_no
from ..shard_tree import families

HEAD = ("SHARD", "SUBTASK", "LAG", "RECORDS/S", "WATERMARK", "IDLE", "HELD", "LOST IN", "")
GROUP_HEAD = ("SHARD", "WORKER", *HEAD[2:])
MIN_ROWS = 1
"""Shards that are shown however low the terminal is."""
MAX_LINES = 4
"""Of one sentence above the table; a longer one, as an error can be, is cut."""


def title_lines(snapshot: JobSnapshot, now_ms: int, error: str | None, width: int) -> list[str]:
    """Totals, alignment and the age of the values, wrapped to the width; `error`: why the last reading failed."""
    shown = [
        _totals(snapshot),
        snapshot.alignment,
        _silence(snapshot),
        _checkpoints(snapshot),
        _commits(snapshot),
        _age(snapshot, now_ms, error),
    ]
    return [
        line
        for text in shown
        if text is not None
        for line in textwrap.wrap(printable(text), max(width, 20), max_lines=MAX_LINES)
    ]


def table_lines(snapshot: JobSnapshot, height: int | None) -> list[str]:
    """Return a head and a line for each shard. If they need more than `height` lines, the last one says how many shards are left out."""
    shards = sorted(snapshot.shards, key=_urgency)
    count = len(shards)
    if height is not None and count + 1 > height:
        count = max(height - 2, MIN_ROWS)
    head = GROUP_HEAD if any(shard.worker is not None for shard in shards) else HEAD
    lines = aligned([head, *(_row(shard, snapshot.global_watermark) for shard in shards[:count])])
    left = len(shards) - count
    return [*lines, f"{left:,} more with less lag"] if left else [*lines]


def tree_lines(snapshot: JobSnapshot) -> list[str]:
    """Return lines with the shards that were split or merged, children below their parents; empty if there are none or they are unknown."""
    streams = {shard.stream for shard in snapshot.shards}

    def name(shard: ShardSnapshot, shard_id: str) -> str:
        return shard_id if len(streams) == 1 else f"{shard.stream}/{shard_id}"

    parents = {
        name(each, each.shard): [name(each, parent) for parent in each.parents or ()] for each in snapshot.shards
    }
    lines = families(parents)
    return ["", "Splits and merges", *lines] if lines else []


def _urgency(shard: ShardSnapshot) -> tuple[bool, float, str]:
    """Return the sort key of a shard: alarms come first, then the largest lag, and unknown lags come last."""
    return not shard.alarm, float("inf") if shard.lag_ms is None else -shard.lag_ms, shard.shard


def _totals(snapshot: JobSnapshot) -> str:
    shards = snapshot.shards
    counts = {
        "idle": sum(bool(shard.is_idle) for shard in shards),
        "held": sum(bool(shard.is_held) for shard in shards),
        "with an alarm": sum(bool(shard.alarm) for shard in shards),
        "records in flight": sum(shard.in_flight or 0 for shard in shards),
    }
    parts = [counted(len(shards), "shard")]
    parts += [f"{count:,} {name}" for name, count in counts.items() if count]
    parts += [] if snapshot.records_per_second is None else [f"{rate(snapshot.records_per_second)} records/s"]
    parts += [] if snapshot.lag_ms is None else [f"at most {duration(snapshot.lag_ms)} behind"]
    if snapshot.global_watermark is not None:
        parts.append(f"global watermark {duration(snapshot.time_ms - snapshot.global_watermark)} ago")
    return ", ".join(parts)


def _silence(snapshot: JobSnapshot) -> str | None:
    silent = [str(each.subtask) for each in snapshot.subtasks or () if each.responds is False]
    return f"Shards of subtasks that do not respond are not shown: {', '.join(silent)}" if silent else None


def _checkpoints(snapshot: JobSnapshot) -> str | None:
    ages = [
        f"{each.worker or f'subtask {each.subtask}'} {duration(each.checkpoint_age_ms)}"
        for each in snapshot.subtasks or ()
        if each.checkpoint_age_ms is not None
    ]
    return f"Since the last checkpoint: {', '.join(ages)}" if ages else None


def _commits(snapshot: JobSnapshot) -> str | None:
    commits = [
        f"{each.worker or each.subtask} {_commit(each.commit)}"
        for each in snapshot.subtasks or ()
        if each.commit is not None
    ]
    return f"Last commit: {'; '.join(commits)}" if commits else None


def _commit(commit: CommitSnapshot) -> str:
    waiting = f"{counted(commit.waiting_records, 'record')} {'waits' if commit.waiting_records == 1 else 'wait'}"
    if commit.age_ms is None:
        return f"none yet, {waiting}"
    files = f"{counted(commit.files, 'file')}, {commit.bytes:,} bytes, " if commit.files else ""
    return f"{duration(commit.age_ms)} ago, {files}{waiting}"


def _age(snapshot: JobSnapshot, now_ms: int, error: str | None) -> str:
    read = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC).strftime("%H:%M:%S")
    text = f"Read at {read} UTC, {max(0, now_ms - snapshot.time_ms) // 1000} s ago"
    return text if error is None else f"{text}; old, since reading fails: {error}"


def _row(shard: ShardSnapshot, global_watermark: int | None) -> tuple[str, ...]:
    return (
        shard.shard,
        shard.worker or ("-" if shard.subtask is None else str(shard.subtask)),
        duration(shard.lag_ms),
        rate(shard.records_per_second),
        _relative(shard.watermark, global_watermark),
        yes_no(shard.is_idle),
        yes_no(shard.is_held),
        duration(shard.loss_ms),
        "ALARM" if shard.alarm else "",
    )


def _relative(watermark: int | None, global_watermark: int | None) -> str:
    """Against the global one: `+4.2 s` is ahead of it."""
    if watermark is None or global_watermark is None:
        return "-"
    ahead_ms = watermark - global_watermark
    return f"+{duration(ahead_ms)}" if ahead_ms > 0 else duration(ahead_ms)
