"""Checks of a replay that has ended: what was written, what stayed unread, which alarms were raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recordpublisher.demo.runner import CheckResult

from ..scenario import DAY_MS, HOUR_MS, MINUTE_MS, Timeline
from .event_log import EventLog

MIN_HELD_MS = 5_000
"""So long the other shards must be held back when the lag has no limit."""
MAX_RELEASE_SECONDS = 10.0
"""Within this time after the second start the other shards must be written; their reads take a few seconds."""


@dataclass(frozen=True, slots=True)
class SuspensionResult:
    """The first part. `sent` by shard; `late`: the shard that gets its first records late; `lag_exit_code` of `lag --check`."""

    log: EventLog
    sent: Mapping[str, int]
    late: str
    timeline: Timeline
    lag_exit_code: int

    @property
    def unread(self) -> int:
        """Records of the late shard that were never written."""
        return self.sent[self.late] - self.log.rows.get(self.late, 0)


@dataclass(frozen=True, slots=True)
class CatchUpResult:
    """The second part.

    `held`: the metrics of the shards when the first job was stopped; `release_seconds`: from the second start until the other shards
    had written all they had so far (None: never); `sent` by shard; `behind`: the shard that is days behind.
    """

    log: EventLog
    held: Mapping[str, Mapping[str, int]]
    lag_ms: int
    release_seconds: float | None
    was_excluded: bool
    sent: Mapping[str, int]
    behind: str


def check_our_rule(result: SuspensionResult) -> list[CheckResult]:
    """By our rule everything is written, and no alarm lasts."""
    log, sent = result.log, sum(result.sent.values())
    written = sum(log.rows.values())
    seconds = seconds_until_read(result)
    lasting = lasting_alarms(log)
    return [
        CheckResult("records written", f"{written:,} of {sent:,}", log.rows == dict(result.sent)),
        CheckResult("records written twice", f"{log.repeated}", log.repeated == 0),
        CheckResult(
            "the late shard was read",
            "never" if seconds is None else f"{seconds:.1f} s after its first record",
            result.unread == 0 and seconds is not None,
        ),
        _progress_while_stopped(result),
        _watermark_regression(log),
        CheckResult("alarms that last", ", ".join(lasting) or "none", not lasting),
        CheckResult("recordpublisher lag --check", f"exit code {result.lag_exit_code}", result.lag_exit_code == 0),
    ]


def check_catch_up(result: CatchUpResult) -> list[CheckResult]:
    """Held back without a limit to the lag, released with it, and nothing lost either way."""
    log = result.log
    others = [key for key in result.sent if key != result.behind]
    held_ms = min(result.held[key]["heldMs"] for key in others)
    written = sum(result.held[key]["records"] for key in others)
    alarmed = {alarm["subject"] for _, _, alarm in log.alarms if not alarm["is_over"]}
    late = sum(one["lateAfterIdle"] for one in log.shards.values())
    total, sent = sum(log.rows.values()), sum(result.sent.values())
    is_excluded = log.shards[result.behind]["excluded"]
    seconds = result.release_seconds
    return [
        CheckResult(
            "without max.lag the others are held back",
            f"{held_ms / 1000:.1f} s each, {written} records written, {result.lag_ms / DAY_MS:.1f} days ahead",
            held_ms >= MIN_HELD_MS and written == 0 and result.lag_ms > HOUR_MS,
        ),
        CheckResult("alarms meanwhile", ", ".join(sorted(alarmed)) or "none", set(others) <= alarmed),
        CheckResult(
            "with max.lag they go on at once",
            "never" if seconds is None else f"{seconds:.1f} s after the start",
            seconds is not None and seconds <= MAX_RELEASE_SECONDS,
        ),
        CheckResult(
            "the shard behind is excluded meanwhile",
            f"{'yes' if result.was_excluded else 'no'}; {late:,} of its records came after the global watermark",
            result.was_excluded and late > 0,
        ),
        CheckResult("it counts again once it has caught up", "no" if is_excluded else "yes", not is_excluded),
        CheckResult("records written", f"{total:,} of {sent:,}", log.rows == dict(result.sent)),
    ]


def seconds_until_read(result: SuspensionResult) -> float | None:
    """From the late shard's first record to the first report that it was written."""
    written = [
        report.at
        for report in result.log.reports
        if result.late in report.shards and report.shards[result.late]["records"]
    ]
    return max(0.0, min(written) - result.timeline.late_from) if written else None


def lasting_alarms(log: EventLog) -> list[str]:
    """Subjects of alarms that were raised and are not over."""
    latest = {(number, alarm["kind"], alarm["subject"]): alarm for _, number, alarm in log.alarms}
    return sorted({alarm["subject"] for alarm in latest.values() if not alarm["is_over"]})


def _progress_while_stopped(result: SuspensionResult) -> CheckResult:
    """How far the global watermark of the others rose while one worker was stopped."""
    timeline, stopped = result.timeline, {number for _, _, number in result.log.actions}
    values = [
        report.global_watermark
        for report in result.log.reports
        if report.process not in stopped
        and timeline.stopped_at <= report.at <= timeline.continued_at
        and report.global_watermark is not None
    ]
    rise = max(values, default=0) - min(values, default=0)
    return CheckResult(
        "the others went on while it was stopped", f"{rise / MINUTE_MS:.1f} minutes of event time", rise >= MINUTE_MS
    )


def _watermark_regression(log: EventLog) -> CheckResult:
    back = log.largest_watermark_regression()
    return CheckResult("largest step back of the global watermark", f"{back / MINUTE_MS:.1f} minutes", not back)
