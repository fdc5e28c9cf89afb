"""Checks at each read whether records have expired unread since the read before (`RetentionGaps`, S5).

`ShardObservation` has everything that one read has observed of a shard, except its records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.records import RecordBatch, to_millis
from recordpublisher.publishers.shards import Shard, shard_to_json, stored_shard_from

from ..checkpoints.shard_starts import given_position
from ..conditional_store import document_as
from ..shards.read_state import latest
from ..shards.retention_check import UNKNOWN_MS, RetentionCheck, RetentionGap, may_have_gap
from ..shards.shard_entry import ShardEntry
from .process_suspension import GAP_SECONDS, SuspensionDetector

log = logging.getLogger("recordpublisher.fetcher")
LOG_INTERVAL_MS = 60_000
START_CHECK_SECONDS = 2.0
"""How long a shard's first read may wait for `RetentionGaps.check_start` (seconds)."""


class RetentionGaps:
    """Checks whether records between two reads have expired unread, before the second batch is queued.

    A read from a position that is past retention does not fail: the service silently continues at the oldest record it has. For most reads
    the check is one comparison. Only a shard that was not read for almost a day, or lags that far behind, costs calls to the service.

    `check`: asks the service. If it is None, nothing is checked.
    """

    def __init__(
        self, check: RetentionCheck | None, suspension: SuspensionDetector, clock: Clock, accepts_loss: bool
    ) -> None:
        self._check = check
        self._suspension = suspension
        self._clock = clock
        self.accepts_loss = accepts_loss
        """Whether the job continues without records that are lost (`flink.state.dataloss=CONTINUE`)."""
        self._pinned_ms: int | None = None
        self._first_start_ms: int | None = None
        self._checked_starts: set[str] = set()
        """The streams for which `check_start` has asked the service."""

    def pin(self, pinned_ms: int | None, ago_ms: int) -> None:
        """Set the time that replaced LATEST, or an age such as "one hour ago", at the job's first start.

        Records that had expired before the first start do not count as lost.

        - `pinned_ms`: this time (epoch ms), or None if the job began elsewhere.
        - `ago_ms`: the age (ms), or 0 for LATEST. The first start was `ago_ms` after `pinned_ms`.
        """
        self._pinned_ms = pinned_ms
        self._first_start_ms = None if pinned_ms is None else pinned_ms + ago_ms

    def start(self, entry: ShardEntry, parents: Iterable[ShardEntry]) -> None:
        """Prepare the checks for a new reader of a shard: set the time since which no record may have expired. That time is:

        - For a shard that was read before, its last record or its last read at the tip.
        - For a new child, the last time at which its parents were known to be open. Their end may have been read much later.
        - For a job that began at LATEST, its first start.

        If the position has no known time, the first read is always checked.
        """
        entry.start_after_parents(parents)
        state = entry.snapshot_state
        seen_ms = latest(state.arrival_ms, state.tip_ms, state.seen_ms)
        if seen_ms is None and self._pinned_ms is not None and state.start.timestamp_ms == self._pinned_ms:
            seen_ms = self._first_start_ms
        position = given_position(state)
        if seen_ms is None and position is not None:
            seen_ms = UNKNOWN_MS
        entry.progress.start(position, seen_ms, self._suspension.lost_seconds)

    async def check_start(self, entry: ShardEntry, start: StartingPosition) -> None:
        """Log a warning, once for each stream, if a shard starts at a time that is before the retention of its stream.

        No record is lost: the job has not been there before, and the user may know it. The service silently begins at its oldest record.
        If the service does not answer soon, the reading begins without the warning.
        """
        asked_ms, stream = start.timestamp_ms, entry.shard.stream
        is_seen = entry.progress.seen_ms is not None or stream in self._checked_starts
        if self._check is None or asked_ms is None or is_seen or not may_have_gap(asked_ms, self._clock.now_ms()):
            return
        self._checked_starts.add(stream)
        oldest_ms = None
        with suppress(TimeoutError):
            async with asyncio.timeout(START_CHECK_SECONDS):
                oldest_ms = await self._check.oldest_retained_ms(stream)
        if oldest_ms is not None and asked_ms < oldest_ms:
            log.warning(
                "stream %s keeps no records that arrived before %s: reading begins there, and not at %s",
                stream,
                iso_time(oldest_ms),
                iso_time(asked_ms),
                extra=log_extra(stream),
            )

    def needs_check(self, entry: ShardEntry, batch: RecordBatch) -> bool:
        """Return whether `check` must be called for a batch before it is queued."""
        seen_ms = latest(entry.progress.seen_ms, entry.progress.counted_ms)
        if self._check is None or not may_have_gap(seen_ms, self._clock.now_ms()):
            return False
        return _has_records(batch) or batch.millis_behind_latest == 0

    async def check(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Check whether records before this batch have expired unread.

        Raises: DataLossError if some have, and the job does not accept that.
        """
        progress, seen_ms = entry.progress, entry.progress.seen_ms
        assert self._check is not None
        assert seen_ms is not None
        if await self._was_read_before_suspension(entry, batch):
            return  # This batch may have been read before the suspension, so it proves nothing. The next read is checked.
        found_ms = _first_arrival_ms(batch)
        next_ms = self._clock.now_ms() if found_ms is None else found_ms
        gap = await self._check.gap_after(entry.shard, progress.position, seen_ms, next_ms)
        if gap is RetentionGap.LOST and not _has_records(batch):
            # The oldest record may have arrived after this empty read, so it proves no gap.
            gap = RetentionGap.NOT_CHECKED
        if gap is RetentionGap.LOST:
            self._on_lost(entry)
        elif gap is RetentionGap.NOT_CHECKED:
            self._on_not_checked(entry)
        if gap is not RetentionGap.NONE:
            progress.on_gap(self._clock.now_ms())  # The time is set, so that the same gap is not counted again.

    def on_marked(self, entry: ShardEntry) -> None:
        """Handle a batch that the publisher has marked as the first one after lost records (`after_gap`).

        Count and log the loss if the publisher has not done so. Raises: DataLossError if the job does not accept lost records.
        """
        if entry.metrics.retention_gaps > entry.progress.counted_gaps:
            return
        place = entry.progress.position or "its start"
        error = DataLossError(f"records of {entry.key} after {place} are lost, as its publisher says")
        if not self.accept(entry, error):
            raise error

    def marked(self, entry: ShardEntry, batch: RecordBatch) -> RecordBatch:
        """Return the batch, marked (`after_gap`) if it is the first one after lost records that the job has accepted.

        The sink learns of the loss when the marked batch is emitted. Earlier records may still be queued until then.
        """
        return entry.progress.take_gap(batch)

    def on_read(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Note that a batch was queued, so that the next check covers the time after this batch."""
        entry.progress.on_read(batch, self.read_ms(entry), entry.metrics.retention_gaps)

    def on_request(self, entry: ShardEntry) -> None:
        """Note the time, because the next read may start now."""
        entry.progress.on_request(self._suspension.lost_seconds)

    def read_ms(self, entry: ShardEntry) -> int:
        """Return when the last batch was read (epoch ms). After a suspension of the process the result may be too early.

        The length of the suspension is subtracted, because the service may have read the records before it.
        """
        return self._clock.now_ms() - round(self._lost_seconds(entry) * 1000)

    def _lost_seconds(self, entry: ShardEntry) -> float:
        return self._suspension.lost_seconds - entry.progress.lost_seconds

    async def _was_read_before_suspension(self, entry: ShardEntry, batch: RecordBatch) -> bool:
        """Return whether the process may have been suspended after the service read this batch.

        The batch then does not show which records exist now.

        The result is True if the process was suspended since the request, and one of these is true:

        - The batch has no records.
        - Its first record would have expired by now.
        - The retention is not known, and the first record arrived before the suspension.
        """
        if self._lost_seconds(entry) < GAP_SECONDS:
            return False
        first_ms = _first_arrival_ms(batch)
        if first_ms is None:
            return True
        assert self._check is not None
        oldest_ms = await self._check.oldest_retained_ms(entry.shard.stream)
        return first_ms < (self.read_ms(entry) if oldest_ms is None else oldest_ms)

    def _on_lost(self, entry: ShardEntry) -> None:
        error = DataLossError(
            f"records of {entry.key} after {entry.progress.position or 'its start'} passed the stream's retention before they were read "
            "and are lost"
        )
        if not self.accept(entry, error):
            raise error

    def accept(self, entry: ShardEntry, error: DataLossError) -> bool:
        """Return whether the job continues in spite of lost records (`flink.state.dataloss=CONTINUE`).

        If it continues, the loss is counted and logged.
        """
        if not self.accepts_loss:
            return False
        entry.metrics.add("retention_gaps")
        entry.progress.on_accepted()
        if self._may_log(entry):
            log.error(
                "%s; the job continues because flink.state.dataloss=CONTINUE", error.loss, extra=log_extra(entry.key)
            )
        return True

    def _on_not_checked(self, entry: ShardEntry) -> None:
        entry.metrics.add("retention_not_checked")
        if self._may_log(entry):
            log.warning(
                "%s was not read for longer than a stream may keep its records, and has no records of that time. "
                "It is not known whether some expired unread",
                entry.key,
                extra=log_extra(entry.key),
            )

    def _may_log(self, entry: ShardEntry) -> bool:
        now_ms, last_ms = self._clock.now_ms(), entry.progress.logged_ms
        if last_ms is not None and now_ms - last_ms < LOG_INTERVAL_MS:
            return False
        entry.progress.on_logged(now_ms)
        return True


def _has_records(batch: RecordBatch) -> bool:
    # `raw_count` also counts records that were taken out of the batch because they cannot be used.
    return len(batch.records) > 0 or batch.raw_count > 0 or batch.cut_arrival_ms is not None


def _first_arrival_ms(batch: RecordBatch) -> int | None:
    """Return when the first record that the read found arrived (epoch ms), or None if no such record is left in the batch.

    It may be a record after the position at which the run ends.
    """
    return to_millis(batch.records[0].arrival) if batch.records else batch.cut_arrival_ms


# ShardObservation is what one read observed of a shard, in addition to its records.
#
# Silence is how long a shard that is read in several runs has had no records (W3).


class ShardObservation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The observations of one read of a shard. Times are epoch ms.

    - `at_tip`: whether the last response was at the tip, and all records were emitted.
    - `tip_seen_ms`: when the first and the last response at the tip arrived.
    - `past_event_time`: whether the next record is above the bound `until_event_time`. `next_watermark` is the watermark of that record.
    - `silent_ms`: how long the shard had no records during the read.
    - `behind_ms`: MillisBehindLatest of the last response; None without a response, or if the service does not report it.
    - `children`: the children that the shard named at its end.
    - `failure`: the error of the last call, if the read ended while this call was being retried.
    - `taken_over`, `refused`: number of subscriptions that another caller took over, and of calls that were refused because the registered
      consumer is in use.
    - `skipped`: number of records that could not be used and were left out.
    """

    at_tip: bool = False
    tip_seen_ms: tuple[int, int] | None = None
    past_event_time: bool = False
    next_watermark: int | None = None
    silent_ms: int = 0
    behind_ms: int | None = msgspec.field(name="millisBehindLatest", default=None)
    children: tuple[Shard, ...] = ()
    failure: str | None = None
    taken_over: int = 0
    refused: int = 0
    skipped: int = 0

    def had_response(self, records: int) -> bool:
        """Return whether the service has answered any request of this read. `records`: number of records that the read returned."""
        return records > 0 or self.behind_ms is not None

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without the fields that have their default."""
        entries: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, children=()))
        return {**entries, "children": [*map(shard_to_json, self.children)]} if self.children else entries

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardObservation:
        """Return the observation from the dict of `to_json`.

        Raises: StateError if a field has the wrong type; KeyError or ValueError if a child is malformed.
        """
        children = tuple(map(stored_shard_from, entries.get("children", ())))
        seen = document_as({**entries, "children": ()}, cls, "what was seen of a shard")
        return msgspec.structs.replace(seen, children=children)


class Silence(msgspec.Struct, frozen=True):
    """How long a shard has had no records (ms), over several reads.

    - `tip_ms`: when the last response at the tip arrived (epoch ms). None after a read that ended before the tip.
    """

    ms: int = 0
    tip_ms: int | None = None

    def after(self, seen: ShardObservation, records: int) -> Silence:
        """Return the silence after one more read.

        The time between two reads at the tip counts as silence, because the later read starts where the earlier one ended and found
        nothing. Within a read, only the silence that `IdlenessTimer` has observed counts: a response may show the shard as it was some
        time before.

        A read without any response changes nothing. Records, or a read that ended before the tip, reset the silence.
        """
        if not seen.had_response(records):
            return self
        first_ms, last_ms = seen.tip_seen_ms or (0, None)
        tip_ms = last_ms if seen.at_tip else None
        if records or seen.past_event_time or not seen.at_tip:
            return Silence(0, tip_ms)
        between = 0 if self.tip_ms is None else max(0, first_ms - self.tip_ms)
        return Silence(self.ms + between + seen.silent_ms, tip_ms)
