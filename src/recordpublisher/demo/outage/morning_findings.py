"""The verdict of the second half: what one shard that is days behind costs, and what leaving it out gives back."""

from __future__ import annotations

from ..result_checks import Finding
from .catch_up import HELD_LEAST_MS, Morning
from .scenario import DAY_MS, HOUR_MS

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
