"""Keeps the active alarms, and decides when each is logged and reported (A2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from ..publishers.log_fields import log_extra

log = logging.getLogger("recordpublisher.alarm")


MAX_LOGGED = 20
"""The most alarms that are named in the log after one check."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A condition that needs a person's attention.

    - `subject`: a shard as `stream/shard-id`, `global watermark`, `sink`, or `worker` and its name.
    - `lasting_ms`: how long the condition has been observed (ms).
    - `reason`: what the shard, the sink or the job waits for, as far as that is known.
    - `is_over`: True in the notice that the condition of an earlier alarm is over.
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
"""Called when an alarm is raised, again after each `flink.alarm.interval` while it lasts, and once when it is over.

The function must return soon, because the job waits for it.
"""


class AlarmKind(StrEnum):
    """The kinds of alarms. Each value is the text that the log shows."""

    UNREAD = "a shard has unread records and emits none"
    STALLED = "the global watermark does not rise although there are records to emit"
    HANGING = "a call of the sink's function does not return"
    WITHHELD = "a worker of the group sends heartbeats and does not release shards that others should read"


class ActiveAlarms:
    """Keeps the active alarms, and reports them to the log and the listener.

    Each alarm is reported when it is raised, again after each interval of `interval_ms`, and when it is over.
    """

    def __init__(self, interval_ms: int, listener: AlarmListener | None = None) -> None:
        self._interval_ms = interval_ms
        self._listener = listener
        self._active: dict[tuple[AlarmKind, str], Alarm] = {}

    def __len__(self) -> int:
        return len(self._active)

    def __iter__(self) -> Iterator[Alarm]:
        return iter(self._active.values())

    def __contains__(self, subject: object) -> bool:
        return any(alarm.subject == subject for alarm in self._active.values())

    def update(self, found: Iterable[Alarm]) -> None:
        """Replace the active alarms by the conditions that a check has found. An active alarm that is not among them is over."""
        now = {(alarm.kind, alarm.subject): alarm for alarm in found}
        over = [replace(alarm, is_over=True) for key, alarm in self._active.items() if key not in now]
        due = {key: alarm for key, alarm in now.items() if self._is_due(key, alarm)}
        self._active = {key: due.get(key) or self._active[key] for key in now}
        _log(logging.INFO, over)
        _log(logging.ERROR, list(due.values()))
        for alarm in (*over, *due.values()):
            self._notify(alarm)

    def _is_due(self, key: tuple[AlarmKind, str], alarm: Alarm) -> bool:
        last = self._active.get(key)
        return last is None or alarm.lasting_ms - last.lasting_ms >= self._interval_ms

    def _notify(self, alarm: Alarm) -> None:
        if self._listener is None:
            return
        try:
            self._listener(alarm)
        except Exception:
            log.exception("the function `on_alarm` has raised an error; the job continues")


def _log(level: int, alarms: list[Alarm]) -> None:
    """Log at most `MAX_LOGGED` alarms, because a job that makes no progress has as many alarms as shards."""
    for alarm in alarms[:MAX_LOGGED]:
        log.log(level, "%s", alarm, extra=log_extra(alarm.subject) if alarm.kind is AlarmKind.UNREAD else None)
    if len(alarms) > MAX_LOGGED:
        log.log(level, "further alarms that are not shown in the log: %d", len(alarms) - MAX_LOGGED)
