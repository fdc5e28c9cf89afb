"""Logs records that cannot be used, at most once a minute for each class of errors.

`how_to_continue` says what to do if such a record ends the job.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from .clock import Clock, SystemClock
from .log_fields import log_extra
from .safe_text import counted
from .shards import is_receiver
from .user_code import exc_info_for_log

INTERVAL_SECONDS = 60.0
MOST_KINDS = 8
"""How many classes of errors have log lines of their own in a minute. All further classes share the lines of one of them."""
DEAD_LETTER = "dead letter for"


class SkippedRecordsLog:
    """Logs the first skipped record of each class of errors at once, and then at most one line a minute for that class.

    A line has the number of records of the class since its last line. Each class has its own lines, so that a record that fails again and
    again cannot hide an outage, whose errors are of another class.

    In an event loop, the last record is logged when the minute is over, with its age. Elsewhere it is logged with the next record.
    """

    def __init__(self, log: logging.Logger, clock: Clock | None = None, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._clock = clock or SystemClock()
        self._kinds: dict[str, _Kind] = {}

    def skipped(
        self,
        record: str,
        reason: str,
        error: BaseException | None = None,
        shard: str = "",
        sequence_number: str | None = None,
        *,
        how: str = "skipped",
        kind: str | None = None,
    ) -> bool:
        """Count a skipped record. Return whether it was logged at once, with the traceback of its error.

        - `record`: the name of the record, for the log line.
        - `reason`: why it was skipped.
        - `error`: the error that user code raised.
        - `shard`: the `Shard.key` of the record.
        - `how`: the words before the record's name in the log line.
        - `kind`: the class of the error, by default that of `error`.
        """
        kind = kind or type(error).__name__
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = next(reversed(self._kinds))
        lines = self._kinds.setdefault(kind, _Kind())
        now = self._clock.monotonic()
        what = f"{how} {record}: {reason}"
        where = log_extra(shard, sequence_number, error) if shard else None
        if now >= lines.next_at:
            self._write(lines, what, where, error)
            return True
        lines.unlogged += 1
        lines.last = what, where, now  # The error is left out, because its traceback would keep the batch in memory.
        if lines.unlogged == 1:
            self._write_later(lines, lines.next_at - now)
        return False

    def _write(
        self, lines: _Kind, what: str, where: Mapping[str, object] | None, error: BaseException | None = None
    ) -> None:
        others = f" ({lines.unlogged} others since the last such line)" if lines.unlogged else ""
        self._log.log(
            self._level, "%s%s", what, others, exc_info=None if error is None else exc_info_for_log(error), extra=where
        )
        lines.next_at, lines.unlogged = self._clock.monotonic() + INTERVAL_SECONDS, 0

    def _write_later(self, lines: _Kind, seconds: float) -> None:
        with suppress(RuntimeError):  # Without an event loop the record is logged with the next one.
            asyncio.get_running_loop().call_later(seconds, self._write_last, lines)

    def _write_last(self, lines: _Kind) -> None:
        if lines.unlogged:
            lines.unlogged -= 1  # The line names this record, so the count of other records does not include it.
            what, where, at = lines.last
            self._write(lines, f"{what} ({self._clock.monotonic() - at:.0f} s ago)", where)


@dataclass(slots=True)
class _Kind:
    """The state of the log lines about one class of errors."""

    next_at: float = float("-inf")
    """When the next line may be written (seconds of the monotonic clock)."""
    unlogged: int = 0
    """Number of records that have no line yet."""
    last: tuple[str, Mapping[str, object] | None, float] = ("", None, 0.0)
    """The last record without a line: the text of the line, its log fields, and when the record was skipped (monotonic seconds)."""


def log_left_out(log: logging.Logger, reader: str, skipped: Mapping[str, int]) -> None:
    """Log how many records a read has skipped. The other log lines name only some of them.

    - `reader`: the name of the reader, for the log line.
    - `skipped`: the number of skipped records of each shard, by `Shard.key`.
    """
    if total := sum(skipped.values()):
        shards = ", ".join(f"{key} {count:,}" for key, count in skipped.items() if count)
        # Records are counted when a response is decoded, and a read may end within a response.
        text = "%s left out %s that could not be used (flink.deserializer.error=SKIP): %s"
        log.warning(text, reader, counted(total, "record"), shards)


def how_to_continue(stream: str, shard_id: str, sequence_number: str) -> str:
    """Return the end of a message about a bad record that ends the job: what a person can do."""
    if is_receiver(shard_id):
        return (
            "the queue delivers it again later. flink.deserializer.error = DEAD_LETTER (in Python deserializer_error=) stores it for "
            "`recordpublisher dead-letters show`, in a job with a sink, and SKIP continues without it"
        )
    # The command shows the record, because it would end the job again at each start. The names of a plugin may need quotes in a shell.
    shown = shlex.join(["recordpublisher", "tail", stream, "--shard", shard_id, "--from", sequence_number, "-n", "1"])
    return (
        f"look at it with `{shown}` (and --properties FILE if the job has such a file); flink.deserializer.error = SKIP continues without "
        "it (in Python deserializer_error=), as does DEAD_LETTER in a job with a sink"
    )
