"""Logs the status of a fetcher once a minute, and warns if shards cannot be read or alignment stalls, with the reason (A1, W12)."""

import logging
from collections.abc import Callable, Sequence

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.properties.job_properties import MAX_LAG
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.safe_text import counted

from ..shards.shard_entry import ShardEntry
from ..shards.shard_table import ShardTable
from ..sink import Unfinished
from ..watermarks import Alignment, LocalWatermark
from .shard_view import largest_lag_ms, unread_ms

log = logging.getLogger("recordpublisher.fetcher")
run_log = logging.getLogger("recordpublisher.run")
QUIET_MS, LONGEST_PAUSE_MS = 60_000, 3_600_000
"""When a shard whose publisher gives no batch is logged: after `QUIET_MS`, and again after pauses that double up to
`LONGEST_PAUSE_MS` (ms).
"""

FAILING_READS_MS = 2_000
"""How long calls for a shard must fail before that is logged (ms). A single failure is not logged."""
MINUTE = 60.0
"""Seconds between two status lines. A warning follows when alignment has been stalled for this time."""


class StatusLogger:
    """Logs the status of a worker once a minute, and warnings about slow alignment and unread shards.

    - `line_of`: returns the line of a plugin's code at which the publisher of a shard (`Shard.key`) waits, or "".
    - `written`: returns how many records were written to the sink.
    - `publisher`: the name of the publisher's factory.
    """

    def __init__(
        self,
        table: ShardTable,
        alignment: Alignment,
        local: LocalWatermark,
        clock: Clock,
        line_of: Callable[[str], str] = lambda key: "",
        written: Callable[[], int] = lambda: 0,
        publisher: str = "the publisher",
    ) -> None:
        self._table = table
        self._alignment = alignment
        self._local = local
        self._clock = clock
        self._line_of = line_of
        self._quiet_ms = QUIET_MS
        """If a publisher has given no batch for this time (ms), the next log line is due."""
        self._written, self._written_before = written, 0
        self._publisher, self._stop_at_tip, self._has_warned_of_tip = publisher, False, False
        self._without_tip: dict[str, tuple[int, float]] = {}
        """The shards whose distance to the tip is not known. Each has the number of its emitted records, and since when it is unchanged."""
        self._global_watermark: int | None = None
        self._last_status = self._last_warning = clock.monotonic()
        self._stalled_since = self._slow_since = clock.monotonic()
        self._others: tuple[str | None, int] = (None, 0)
        self._unread_logged_at: float | None = None
        """When shards that cannot be read were last logged; None if every shard is read."""

    def start_run(self, *, stop_at_tip: bool) -> None:
        """Start a run. `stop_at_tip`: whether the run ends when each shard was read to its tip."""
        self._stop_at_tip, self._has_warned_of_tip = stop_at_tip, False
        self._without_tip.clear()

    def check(self, unfinished: Unfinished | None) -> None:
        """Log the status if a minute has passed, and the warnings that are due. Called at each heartbeat.

        `unfinished`: the records that the sink has not finished, which count for the lag of the status.
        """
        now = self._clock.monotonic()
        self._log_unread(now)
        self._log_quiet()
        if self._stop_at_tip and not self._has_warned_of_tip:
            self._warn_without_tip(now)
        held = sum(entry.status.is_held for entry in self._table)
        if self._alignment.global_watermark != self._global_watermark or not held:
            self._global_watermark, self._stalled_since = self._alignment.global_watermark, now
        if now - self._last_status >= MINUTE:
            self._last_status = now
            self._log_status(held, unfinished)
        self._update_slow_since(held, now)
        if now - max(self._stalled_since, self._last_warning) >= MINUTE:
            self._last_warning = now
            self._warn_stalled(held, now - self._stalled_since)
        elif now - max(self._slow_since, self._last_warning) >= MINUTE:
            self._last_warning = now
            self._warn_slow(held, now - self._slow_since)

    def _log_unread(self, now: float) -> None:
        """Log that calls for shards fail, with the reason.

        There is one line a minute for all shards, and one when all shards are read again.
        """
        now_ms = self._clock.now_ms()
        failing = [
            (age_ms, entry)
            for entry in self._table
            if entry.metrics.last_failure is not None and (age_ms := unread_ms(entry, now_ms)) is not None
        ]
        longest_ms, entry = max(failing, key=lambda each: each[0], default=(0, None))
        if entry is None:
            if self._unread_logged_at is not None:
                log.warning("all shards are read again")
            self._unread_logged_at = None
        elif longest_ms >= FAILING_READS_MS and now - (self._unread_logged_at or float("-inf")) >= MINUTE:
            self._unread_logged_at = now
            log.warning(
                "%s cannot be read, %s for the longest time, %.0f s; reading is tried again: %s",
                counted(len(failing), "shard"),
                entry.key,
                longest_ms / 1000,
                entry.metrics.last_failure,
            )

    def _log_quiet(self) -> None:
        """Log at which line of its code a plugin's publisher waits, if it has given no batch for some time, not even an empty one."""
        now_ms = self._clock.now_ms()
        ages = ((unread_ms(entry, now_ms) or 0, entry) for entry in self._table if entry.metrics.last_failure is None)
        quiet = [(age_ms, entry) for age_ms, entry in ages if age_ms >= QUIET_MS]
        longest_ms, entry = max(quiet, key=lambda each: each[0], default=(0, None))
        if entry is None:
            self._quiet_ms = QUIET_MS
        elif longest_ms >= self._quiet_ms and (line := self._line_of(entry.key)):
            self._quiet_ms += min(self._quiet_ms, LONGEST_PAUSE_MS)
            run_log.info(
                "%s gave no batch lately, not even an empty one, %s for the longest time, %.0f s: the publisher waits at %s",
                counted(len(quiet), "shard"),
                entry.key,
                longest_ms / 1000,
                line,
                extra=log_extra(entry.key),
            )

    def _warn_without_tip(self, now: float) -> None:
        """Warn once in a run if a publisher gives only empty batches, and never says how far they are behind the tip."""
        known, self._without_tip = self._without_tip, {}
        for entry in self._table:
            # A publisher that gives no batch at all is logged by `_log_quiet`, and a read that fails by `_log_unread`.
            is_read = entry.needs_reader and entry.reading.last_read_ms is not None and not entry.reading.queue
            if not is_read or entry.shard.closed or entry.metrics.millis_behind_latest >= 0:
                continue
            if entry.metrics.last_failure is None and (unread_ms(entry, self._clock.now_ms()) or 0) < QUIET_MS:
                before, since = known.get(entry.key, (-1, now))
                self._without_tip[entry.key] = (
                    entry.emission.records,
                    since if before == entry.emission.records else now,
                )
        key = min(self._without_tip, key=lambda each: self._without_tip[each][1], default=None)
        if key is None or now - self._without_tip[key][1] < MINUTE:
            return
        self._has_warned_of_tip = True
        log.warning(
            "the run waits until a read is at the tip of %s, and %s has not said so for %s, although it gave no record for %.0f s: when no "
            "record follows a batch, even an empty one, its publisher must give the batch millis_behind_latest=0",
            counted(len(self._without_tip), "shard"),
            self._publisher,
            key,
            now - self._without_tip[key][1],
            extra=log_extra(key),
        )

    def _update_slow_since(self, held: int, now: float) -> None:
        """If alignment is not slow now, start to measure again from `now`. It is not slow in two cases:

        - No shard is held back (`held` is 0).
        - A shard has written a record, and it is not the shard with the lowest watermark.
        """
        blocking_shard = self._alignment.blocking_shard
        others = blocking_shard, sum(entry.emission.records for entry in self._table if entry.key != blocking_shard)
        if others != self._others or not held:
            self._others, self._slow_since = others, now

    def _log_status(self, held: int, unfinished: Unfinished | None) -> None:
        entries = [entry for entry in self._table if entry.is_open]
        written, before = self._written(), self._written_before
        self._written_before = written
        lag_ms = largest_lag_ms(self._table, unfinished, self._clock.now_ms())
        log.info(
            "%s read, %s written since the last status line, lag %s, watermark %s%s",
            counted(len(entries), "open shard"),
            counted(written - before, "record"),
            "unknown" if lag_ms is None else duration_words(lag_ms / 1000),
            _time_of(self._local.value),
            self._alignment_words(entries, held) if self._alignment.has_limit else "",
        )

    def _alignment_words(self, entries: Sequence[ShardEntry], held: int) -> str:
        idle = sum(not entry.is_active for entry in entries)
        return f", global watermark {_time_of(self._alignment.global_watermark)}, {idle} idle, {held} held back"

    def _warn_stalled(self, held: int, seconds: float) -> None:
        log.warning(
            "alignment is stalled: the global watermark has not changed from %s for %.0f s. Held back: %s, waiting for %s",
            _time_of(self._global_watermark),
            seconds,
            counted(held, "shard"),
            self._blocked_by(),
        )

    def _warn_slow(self, held: int, seconds: float) -> None:
        log.warning(
            "alignment is slow: the global watermark is %s. Shards that are held back: %d. None of their records was written for "
            "%.0f s; they are up to %s ms ahead, waiting for %s; set %s to exclude lagging shards",
            _time_of(self._global_watermark),
            held,
            seconds,
            self._alignment.lag_ms,
            self._blocked_by(),
            MAX_LAG.key,
        )

    def _blocked_by(self) -> str:
        return what_blocks(self._alignment)


def _time_of(watermark: int | None) -> str:
    return "unknown" if watermark is None else iso_time(watermark)


def what_blocks(alignment: Alignment) -> str:
    """Return, in words, what the global watermark waits for: the shard with the lowest watermark, or another worker of the group."""
    if alignment.waits_for_others:
        return "a shard of another worker"
    shard = alignment.blocking_shard
    return "no shard of this worker" if shard is None else f"shard {shard}"
