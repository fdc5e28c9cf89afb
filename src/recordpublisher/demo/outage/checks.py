"""The verdict of the first half: what was written, what stayed unread, who noticed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..result_checks import Finding
from .catch_up import HELD_LEAST_MS, Morning
from .event_log import Recording
from .scenario import DAY_MS, HOUR_MS, MINUTE_MS, Script

ALARM_CODE = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """A play that is over: `sent` by shard, the shard that spoke `late`, what `lag --check` answered."""

    recording: Recording
    sent: Mapping[str, int]
    late: str
    script: Script
    lag_code: int

    @property
    def unread(self) -> int:
        """Records of the late shard that were never written."""
        return self.sent[self.late] - self.recording.rows.get(self.late, 0)


def findings_of_ours(evidence: Evidence) -> list[Finding]:
    """By our rule everything is written, and nobody raises an alarm that lasts."""
    recording, sent = evidence.recording, sum(evidence.sent.values())
    written = sum(recording.rows.values())
    seconds = seconds_until_read(evidence)
    lasting = lasting_alarms(recording)
    return [
        Finding("records written", f"{written:,} of {sent:,}", recording.rows == dict(evidence.sent)),
        Finding("records written twice", f"{recording.repeated}", recording.repeated == 0),
        Finding(
            "the late shard was read",
            "never" if seconds is None else f"{seconds:.1f} s after its first record",
            evidence.unread == 0 and seconds is not None,
        ),
        went_on(evidence),
        _steps_back(recording),
        Finding("alarms that last", ", ".join(lasting) or "none", not lasting),
        Finding("recordpublisher lag --check", f"exit code {evidence.lag_code}", evidence.lag_code == 0),
    ]


def findings_of_flink(evidence: Evidence) -> list[Finding]:
    """By Flink's old rule one shard stays unread while the others go on, and our alarms say so."""
    recording = evidence.recording
    others = {key: count for key, count in evidence.sent.items() if key != evidence.late}
    written = {key: recording.rows.get(key, 0) for key in others}
    lasting = lasting_alarms(recording)
    return [
        Finding(
            f"{evidence.late} stays unread",
            f"{evidence.unread:,} of {evidence.sent[evidence.late]:,} records",
            evidence.unread == evidence.sent[evidence.late],
        ),
        Finding("the other shards go on", f"{sum(written.values()):,} of {sum(others.values()):,}", written == others),
        went_on(evidence),
        Finding("alarms that last", ", ".join(lasting) or "none", evidence.late in lasting),
        Finding("recordpublisher lag --check", f"exit code {evidence.lag_code}", evidence.lag_code == ALARM_CODE),
    ]


def went_on(evidence: Evidence) -> Finding:
    """How far the global watermark of the others rose while one subtask was stopped."""
    script, stopped = evidence.script, {number for _, _, number in evidence.recording.acts}
    values = [
        moment.value
        for moment in evidence.recording.moments
        if moment.subtask not in stopped
        and script.stopped_at <= moment.at <= script.continued_at
        and moment.value is not None
    ]
    risen = max(values, default=0) - min(values, default=0)
    words = f"{risen / MINUTE_MS:.1f} minutes of event time"
    return Finding("the others went on while it was stopped", words, risen >= MINUTE_MS)


def seconds_until_read(evidence: Evidence) -> float | None:
    """From the late shard's first record to the first report that it was written."""
    reached = [
        moment.at
        for moment in evidence.recording.moments
        if evidence.late in moment.shards and moment.shards[evidence.late]["records"]
    ]
    return max(0.0, min(reached) - evidence.script.spoken_from) if reached else None


def lasting_alarms(recording: Recording) -> list[str]:
    """Subjects of alarms that were raised and are not over."""
    latest = {(number, alarm["kind"], alarm["subject"]): alarm for _, number, alarm in recording.alarms}
    return sorted({alarm["subject"] for alarm in latest.values() if not alarm["is_over"]})


def _steps_back(recording: Recording) -> Finding:
    back = recording.steps_back()
    return Finding("largest step back of the global watermark", f"{back / MINUTE_MS:.1f} minutes", not back)


SOON_SECONDS = 10.0
"""Within this time after the second start the others must be through; their reads take a few seconds."""


def findings_of_morning(seen: Morning) -> list[Finding]:
    """Held back without a limit to the lag, let go with it, and nothing lost either way."""
    others = [key for key in seen.sent if key != seen.behind]
    held_ms = min(seen.held[key]["heldMs"] for key in others)
    written = sum(seen.held[key]["records"] for key in others)
    alarmed = {alarm["subject"] for _, _, alarm in seen.recording.alarms if not alarm["is_over"]}
    late = sum(one["lateAfterIdle"] for one in seen.recording.shards.values())
    total, sent = sum(seen.recording.rows.values()), sum(seen.sent.values())
    is_left_out = seen.recording.shards[seen.behind]["leftOut"]
    freed = "never" if seen.freed_seconds is None else f"{seen.freed_seconds:.1f} s after the start"
    return [
        Finding(
            "without max.lag the others are held back",
            f"{held_ms / 1000:.1f} s each, {written} records written, {seen.lag_ms / DAY_MS:.1f} days ahead, "
            f"waiting for subtask {seen.holder}",
            held_ms >= HELD_LEAST_MS and written == 0 and seen.lag_ms > HOUR_MS,
        ),
        Finding(
            "alarms meanwhile",
            ", ".join(sorted(alarmed)) or "none",
            set(others) <= alarmed,
        ),
        Finding(
            "with max.lag they go on at once",
            freed,
            seen.freed_seconds is not None and seen.freed_seconds <= SOON_SECONDS,
        ),
        Finding(
            "the shard behind is left out meanwhile",
            f"{'yes' if seen.was_left_out else 'no'}; {late:,} of its records came after the global watermark",
            seen.was_left_out and late > 0,
        ),
        Finding("it counts again once it has caught up", "no" if is_left_out else "yes", not is_left_out),
        Finding("records written", f"{total:,} of {sent:,}", seen.recording.rows == dict(seen.sent)),
    ]
