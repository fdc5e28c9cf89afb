"""Logs records that cannot be used, at most once a minute, and says how to continue when such a record ends the job."""

import asyncio
import logging
import shlex
from collections.abc import Mapping
from contextlib import suppress

from .clock import Clock, SystemClock
from .log_fields import counted, log_extra
from .user_code import exc_info_for_log

INTERVAL_SECONDS = 60.0
DEAD_LETTER = "dead letter for"


class SkippedRecordsLog:
    """Logs the first skipped record at once, and after that at most one line a minute, with the number of records since the last line.

    In an event loop the last record is logged when the minute is over, with its age. Elsewhere it is logged with the next record.
    """

    def __init__(self, log: logging.Logger, clock: Clock | None = None, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._clock = clock or SystemClock()
        self._next_at = float("-inf")
        self._unlogged = 0
        self._last: tuple[str, Mapping[str, object] | None, float] = ("", None, 0.0)

    def skipped(
        self,
        record: str,
        reason: str,
        error: BaseException | None = None,
        shard: str = "",
        sequence_number: str | None = None,
        *,
        how: str = "skipped",
    ) -> bool:
        """Count a skipped record. Return whether it was logged at once, with its traceback.

        - `error`: the error that user code raised, for its traceback.
        - `shard`: the `Shard.key` of the record.
        - `how`: the words before the record's name.
        """
        now = self._clock.monotonic()
        what = f"{how} {record}: {reason}"
        where = log_extra(shard, sequence_number, error) if shard else None
        if now >= self._next_at:
            self._write(what, where, error)
            return True
        self._unlogged += 1
        self._last = what, where, now  # The error is left out, because its traceback would keep the batch in memory.
        if self._unlogged == 1:
            self._write_later(self._next_at - now)
        return False

    def _write(self, what: str, where: Mapping[str, object] | None, error: BaseException | None = None) -> None:
        others = f" ({self._unlogged} others since the last such line)" if self._unlogged else ""
        self._log.log(
            self._level, "%s%s", what, others, exc_info=None if error is None else exc_info_for_log(error), extra=where
        )
        self._next_at, self._unlogged = self._clock.monotonic() + INTERVAL_SECONDS, 0

    def _write_later(self, seconds: float) -> None:
        with suppress(RuntimeError):  # Without an event loop the record is logged with the next one.
            asyncio.get_running_loop().call_later(seconds, self._write_last)

    def _write_last(self) -> None:
        if self._unlogged:
            self._unlogged -= 1  # The line names this record, so the count of other records does not include it.
            what, where, at = self._last
            self._write(f"{what} ({self._clock.monotonic() - at:.0f} s ago)", where)


def log_left_out(log: logging.Logger, reader: str, skipped: Mapping[str, int]) -> None:
    """Log how many records a read has skipped, because the lines about bad records name only some of them.

    - `reader`: what has read, for the log line. `skipped`: the number of skipped records of each shard, by `Shard.key`.
    """
    if total := sum(skipped.values()):
        shards = ", ".join(f"{key} {count:,}" for key, count in skipped.items() if count)
        # Records are counted when a response is decoded, and a read may end within a response.
        text = "%s left out %s that could not be used (flink.deserializer.error=SKIP): %s"
        log.warning(text, reader, counted(total, "record"), shards)


def how_to_continue(stream: str, shard_id: str, sequence_number: str) -> str:
    """Return what a person can do about a bad record that ends the job, for a message."""
    # The command shows the record, because it would end the job again at each start. The names of a plugin may need quotes in a shell.
    shown = shlex.join(["recordpublisher", "tail", stream, "--shard", shard_id, "--from", sequence_number, "-n", "1"])
    return (
        f"look at it with `{shown}`, with --properties and the "
        f"job's file if it has one; flink.deserializer.error = SKIP continues without it (in Python deserializer_error=), as does "
        "DEAD_LETTER in a job with a sink"
    )
