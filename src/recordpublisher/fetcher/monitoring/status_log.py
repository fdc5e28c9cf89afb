"""StatusLogger: says once a minute where a subtask stands, and who holds an alignment that stands still or crawls (A1, W10, W12)."""

from __future__ import annotations

import logging

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.table import MAX_LAG, STARTUP_TIMEOUT, TRACKER

from ..coordination.watermark_tracker import WatermarkTracker
from ..shards.shard_table import ShardTable
from ..watermarks.alignment import Alignment
from ..watermarks.local_watermark import LocalWatermark

log = logging.getLogger("recordpublisher.fetcher")

MINUTE = 60.0
"""Between two lines of the log, and how long alignment may stand still before a warning; seconds."""


class StatusLogger:
    """Looks at every heartbeat; owns when it last spoke and since when the global watermark stands."""

    def __init__(
        self,
        subtask: int,
        table: ShardTable,
        alignment: Alignment,
        local: LocalWatermark,
        tracker: WatermarkTracker,
        clock: Clock,
    ) -> None:
        self._subtask = subtask
        self._table = table
        self._alignment = alignment
        self._local = local
        self._tracker = tracker
        self._clock = clock
        self._value: int | None = None
        self._left_out: tuple[int, ...] = ()
        self._was_alone = False
        self._spoke = self._stands_since = self._warned = self._crawls_since = clock.monotonic()
        self._others: tuple[str | None, int] = (None, 0)

    def look(self) -> None:
        """Say what is due. Raises: ConfigurationError when expected subtasks have not joined by the start-up timeout (W6)."""
        self._refuse_missing_subtasks()
        self._name_who_is_left_out()
        self._say_whether_alone()
        now = self._clock.monotonic()
        held = sum(entry.held_since is not None for entry in self._table)
        if self._alignment.global_watermark != self._value or not held:
            self._value, self._stands_since = self._alignment.global_watermark, now
        if now - self._spoke >= MINUTE:
            self._spoke = now
            self._tell(held)
        self._look_at_others(held, now)
        if now - max(self._stands_since, self._warned) >= MINUTE:
            self._warned = now
            self._warn(held, now - self._stands_since)
        elif now - max(self._crawls_since, self._warned) >= MINUTE:
            self._warned = now
            self._warn_of_crawling(held, now - self._crawls_since)

    def _look_at_others(self, held: int, now: float) -> None:
        """Since when nothing was written but records of the one shard that holds the minimum (W12)."""
        holder = self._alignment.holder
        others = holder, sum(entry.records for entry in self._table if entry.key != holder)
        if others != self._others or not held:
            self._others, self._crawls_since = others, now

    def _refuse_missing_subtasks(self) -> None:
        """Subtasks of other processes never join a tracker of this one: an error, not a wait without end."""
        missing = self._tracker.missing_subtasks()
        if missing and self._alignment.is_out_of_patience:
            reason = f"subtasks {missing} have not joined within {STARTUP_TIMEOUT.key}"
            raise ConfigurationError(TRACKER.key, "IN_PROCESS", "a tracker that all subtasks reach", reason=reason)

    def _name_who_is_left_out(self) -> None:
        """The others went on without them: their records may be late when they come back (W6)."""
        before, self._left_out = self._left_out, self._tracker.timed_out_subtasks()
        if set(self._left_out) - set(before):
            named = ", ".join(map(str, self._left_out))
            log.warning("subtasks %s were not heard of in time: the global watermark goes on without them", named)

    def _say_whether_alone(self) -> None:
        """Not aligned with the others: an alarm, and a sigh of relief (W10)."""
        if self._alignment.is_alone != self._was_alone:
            self._was_alone = not self._was_alone
            line = (
                "subtask %d is not aligned with the others: the tracker was never reached, it goes by its own watermark"
            )
            log.warning(line if self._was_alone else "subtask %d is aligned with the others again", self._subtask)

    def _tell(self, held: int) -> None:
        entries = [entry for entry in self._table if entry.is_open]
        idle = sum(not entry.is_active for entry in entries)
        told, known = self._local.value, self._alignment.global_watermark
        line = "subtask %d: local watermark %s, global %s, %d open shards, %d idle, %d held"
        log.info(line, self._subtask, told, known, len(entries), idle, held)

    def _warn(self, held: int, seconds: float) -> None:
        """The longer it stands, the more a person must know whom to look at."""
        log.warning(
            "alignment stands still at %s for %.0f s and holds %d shards of subtask %d back: waiting for %s",
            self._value,
            seconds,
            held,
            self._subtask,
            waited_for(self._tracker, self._alignment.holder, self._subtask),
        )

    def _warn_of_crawling(self, held: int, seconds: float) -> None:
        lag = self._alignment.lag_ms
        log.warning(
            "alignment crawls at %s: for %.0f s subtask %d has written nothing of %d held shards, the furthest of which is %s ms ahead: "
            "waiting for %s; %s leaves a shard far behind out",
            self._value,
            seconds,
            self._subtask,
            held,
            lag,
            waited_for(self._tracker, self._alignment.holder, self._subtask),
            MAX_LAG.key,
        )


def waited_for(tracker: WatermarkTracker, own_holder: str | None, subtask: int) -> str:
    """Subtasks that have not joined, else another subtask, else the shard that holds this subtask's own minimum."""
    holder, missing = tracker.lowest_subtask(), tracker.missing_subtasks()
    if missing:
        return f"subtasks that have not joined: {missing}"
    if holder is not None and holder != subtask:
        return f"subtask {holder}"
    return f"shard {own_holder}"
