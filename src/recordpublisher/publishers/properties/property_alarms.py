"""The properties of alarms (A2, C1)."""

from __future__ import annotations

from .property_types import integer

ALARM_INTERVAL = integer(
    "flink.alarm.interval",
    "A shard is written to and nothing of it comes out, or the global watermark stands still: for this long, it is an alarm (A2); -1 off.",
    300_000,
    1,
    also=(-1,),
    unit="ms",
    group="Alarms",
)
