"""A schedule without faults, as directed ones begin."""

from __future__ import annotations

from dataclasses import replace

from .group_schedule import GroupEvent, GroupSchedule, random_schedule
from .shared_store import Faults


def calm(seed: int, *events: GroupEvent, workers: int = 3, roots: int = 6, records: int = 150) -> GroupSchedule:
    """Without faults, but for the events; every shard has records for a few minutes, and as much traffic as any other."""
    return replace(
        random_schedule(seed),
        is_graceful=False,
        workers=workers,
        roots=roots,
        records=records,
        disturbed_seconds=120.0,
        faults=Faults(0.0, 0.0, 0.1, 0.0, 0.0),
        timeout=2.0,
        lookahead=None,
        is_transactional=False,
        traffic_changes=(),
        loads=(0.0,),
        traps=(),
        events=events,
    )


def event(kind: str, at: float, seconds: float = 0.0, choice: float = 0.0) -> GroupEvent:
    """An event of the group."""
    return GroupEvent(at, kind, choice, seconds)
