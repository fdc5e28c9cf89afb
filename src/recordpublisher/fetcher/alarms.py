"""Alarms: what is raised, and who is told (A2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

log = logging.getLogger("recordpublisher.alarm")


NAMED = 20
"""How many alarms of one look the log names."""


class AlarmKind(StrEnum):
    """What an alarm is about."""

    UNREAD = "a shard is written to, and nothing of it comes out"
    STALLED = "the global watermark stands still while there is something to emit"
    TRACKER_UNREACHABLE = "the tracker was never reached, and the subtask goes by its own watermark"


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that a person must look at.

    `subject` is a shard as `stream/shard-id`, `global watermark` or `tracker`; `lasting_ms` for how long it was seen; `reason` who or what
    is waited for, as far as it is known. `is_over`: it was raised before and is no more.
    """

    kind: AlarmKind
    subject: str
    lasting_ms: int
    reason: str
    is_over: bool = False

    def __str__(self) -> str:
        if self.is_over:
            return f"over: {self.kind}: {self.subject}"
        return f"{self.kind}: {self.subject}, for {self.lasting_ms / 1000:.0f} s; {self.reason}"


AlarmListener = Callable[[Alarm], None]
"""Called when an alarm is raised, again each interval while it lasts, and once when it is over; it must return soon."""


class ActiveAlarms:
    """Owns what is raised; tells the log and the listener, and reminds once an interval."""

    def __init__(self, interval_ms: int, listener: AlarmListener | None = None) -> None:
        self._interval_ms = interval_ms
        self._listener = listener
        self._raised: dict[tuple[AlarmKind, str], Alarm] = {}

    def __len__(self) -> int:
        return len(self._raised)

    def __contains__(self, subject: object) -> bool:
        return any(alarm.subject == subject for alarm in self._raised.values())

    def show(self, found: Iterable[Alarm]) -> None:
        """Everything that is wrong now; what was raised before and is not among it is over."""
        now = {(alarm.kind, alarm.subject): alarm for alarm in found}
        over = [replace(alarm, is_over=True) for key, alarm in self._raised.items() if key not in now]
        due = {key: alarm for key, alarm in now.items() if self._is_due(key, alarm)}
        self._raised = {key: due.get(key) or self._raised[key] for key in now}
        _log(logging.INFO, over)
        _log(logging.ERROR, list(due.values()))
        for alarm in (*over, *due.values()):
            self._tell(alarm)

    def _is_due(self, key: tuple[AlarmKind, str], alarm: Alarm) -> bool:
        told = self._raised.get(key)
        return told is None or alarm.lasting_ms - told.lasting_ms >= self._interval_ms

    def _tell(self, alarm: Alarm) -> None:
        if self._listener is None:
            return
        try:
            self._listener(alarm)
        except Exception:
            log.exception("the alarm listener failed; the job goes on")


def _log(level: int, alarms: list[Alarm]) -> None:
    """A job that stands has as many alarms as shards: the log names some."""
    for alarm in alarms[:NAMED]:
        log.log(level, "%s", alarm)
    if len(alarms) > NAMED:
        log.log(level, "and %d further alarms like these", len(alarms) - NAMED)
