"""RuleChecker: checks every write, every watermark of a sink and every global watermark, and reports the rule that is violated."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

from recordpublisher.publishers.records import RecordBatch

from .schedule import JobRun
from .simulated_stream import SimulatedStream

JITTER_SECONDS = 1.5
ON_THE_WAY_SECONDS = 3.0
"""A response takes less than one second."""
"""By how much the delays of two responses may differ."""
HELD_SECONDS = 1.0
"""Reads that began before the shard was held may be on their way."""
WRITE_SECONDS = 3.0
"""Two sync intervals, and a little: within this time a record that may be written is written."""


class RuleViolationError(AssertionError):
    """A rule is violated."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class RuleChecker:
    """Owns what was written of each shard, the last watermark of each sink, the highest global watermark, and the rules broken so far.

    `is_strict`: the first broken rule ends the schedule. Otherwise broken rules are collected, for a model that is known to break some.
    """

    def __init__(self, stream: SimulatedStream, is_strict: bool = True) -> None:
        self.stream = stream
        self.broken: dict[str, str] = {}
        self.late = 0
        self.trace = 0
        """A checksum of all writes in their order: the same for each run of a seed."""
        self._is_strict = is_strict
        self._done: dict[str, int] = {}
        self._sink_watermarks: dict[int, int] = {}
        """The last watermark of the sink of each process."""
        self._start: object = None
        self._highest: int | None = None
        self._remaining = stream.total
        self._late_of: dict[str, int] = {}
        self._may_cause_late_records = True
        self._excluded: set[str] = set()
        self.may_repeat = False
        """Whether something has happened after which records are read and written again."""

    @property
    def is_complete(self) -> bool:
        return self._remaining == 0

    @property
    def missing(self) -> dict[str, str]:
        missing = {key: self._unwritten(key) for key in self.stream.shards if key not in self._excluded}
        return {
            key: f"all but {len(indexes)} of {len(self.stream[key].usable)}"
            for key, indexes in missing.items()
            if indexes
        }

    def late_of(self, key: str) -> int:
        """How many records of a shard were below the global watermark in this run and not late in their shard."""
        return self._late_of.get(key, 0)

    def expect(self, holds: bool, rule: str, text: str) -> None:
        if holds:
            return
        if self._is_strict:
            raise RuleViolationError(rule, text)
        self.broken.setdefault(rule, text)

    # --- checks -------------------------------------------------------------------------------------------------------------

    def start_run(self, job_run: JobRun, counts: dict[str, int], is_disturbed: bool = False) -> None:
        """A run starts; `counts`: how many records of each shard were read before.

        `is_disturbed`: a fault of the run before still lasts.
        """
        self._may_cause_late_records = is_disturbed or not job_run.is_faultless
        self._sink_watermarks.clear()
        self._late_of.clear()
        self._rewind(self.stream.shards, counts)

    def restart(self, counts: dict[str, int]) -> None:
        """The job restarts within a run; `counts`: how many records of each shard were read before."""
        self._sink_watermarks.clear()
        self._rewind(self.stream.shards, counts)

    def start_workers(self, job_run: JobRun) -> None:
        """A run of a job starts, whose processes resume from what is stored: `check_begin` sees from where."""
        self._may_cause_late_records = not job_run.is_faultless or self.may_repeat
        self._late_of.clear()

    def check_begin(self, batch: RecordBatch) -> None:
        """A batch is about to be written, which may begin before records that were written already if `may_repeat`."""
        size, key = self.stream.plan.aggregate, batch.shard.key
        first = min(int(each.sequence_number) * size + max(each.sub_sequence_number, 0) for each in batch.records)
        if self.may_repeat and first < self._done.get(key, 0):
            self._rewind([key], {key: first})

    def check_global_watermark(self, start: object, value: int | None) -> None:
        """The job has this global watermark: within a start it never falls."""
        if start != self._start:
            self._start, self._highest = start, None
        highest = self._highest
        self.expect(
            highest is None or (value is not None and value >= highest),
            "W6",
            f"the global watermark fell from {highest} to {value}",
        )
        self._highest = value if highest is None or (value is not None and value > highest) else highest

    def check_write(self, batch: RecordBatch, value: int | None) -> None:
        """A sink received a batch; `value` is the global watermark that it knew."""
        stream, key = self.stream, batch.shard.key
        size, done = stream.plan.aggregate, self._done.get(key, 0)
        indexes = [int(each.sequence_number) * size + max(each.sub_sequence_number, 0) for each in batch.records]
        last = indexes[-1] + 1
        expected = stream[key].usable_between(done, last)
        self.expect(indexes == expected, "S1", f"{key}: {done} were written, now {indexes}")
        for parent in stream.parents(key):
            self.expect(not self._unwritten(parent), "S2", f"{key} was written before its parent {parent}")
        own, counted = (batch.watermarks or ())[-1], stream.watermark(key, last)
        is_forgotten = stream.plan.inconsistent_listings and own < counted  # as in `check_beginning`
        as_expected = own == counted or key in stream.merged or is_forgotten
        self.expect(as_expected, "W12", f"the watermark of {key} is {own}, not {counted}")
        self._check_lateness(key, indexes, value)
        self.trace = zlib.crc32(f"{key} {done} {last} {value}".encode(), self.trace)
        if key not in self._excluded:
            self._remaining -= len(indexes)
        self._done[key] = last

    def check_end(self, *, has_others: bool) -> None:
        """A run has ended by itself: only a process that runs alone sees the end of a finite stream (S8)."""
        self.expect(
            self.stream.plan.is_finite and not has_others, "S8", "the run of an endless stream or of a group ended"
        )
        self.expect(self.is_complete, "S8", f"the run ended, and written are only: {self.missing}")

    def check_report(self, key: str, first: int, is_active: bool, watermark: int | None) -> None:
        """A process reports how its shards count, while records of this one are queued, `first` being the watermark of the first (W4)."""
        counts = is_active and (watermark is None or watermark <= first)
        self.expect(counts, "W4", f"{key} has records at {first}, and {watermark} is reported, active: {is_active}")

    def check_beginning(self, key: str, watermark: int | None, value: int | None) -> None:
        """A shard counts, of which nothing was written: at the lowest watermark of its parents (W5). `value` is the global watermark.

        Merged shards are left out: what they inherit depends on which of their parents was listed first. If a listing has shown one of two
        children, a group has forgotten the parent when the other one is found. That child and its children begin lower.
        """
        if key in self.stream.merged:
            return
        inherited, may_lack = self.stream.watermark(key, 0), self.stream.plan.inconsistent_listings
        is_forgotten = may_lack and (watermark is None or (inherited is not None and watermark < inherited))
        text = f"{key} begins at {watermark}, its parents ended at {inherited}"
        self.expect(watermark == inherited or is_forgotten, "W5", text)
        if not self._may_cause_late_records and not may_lack and inherited is not None:
            self.expect(
                value is None or value <= inherited, "W5", f"{key} begins at {watermark}, below the global {value}"
            )

    def check_read(self, key: str, held_seconds: float) -> None:
        """A read of a shard begins. Alignment has held its next record back for so long without a break (W11)."""
        self.expect(held_seconds <= HELD_SECONDS, "W11", f"{key} is read, and was held for {held_seconds:.1f} s")

    def check_lag(self, watermark: int | None, highest: int | None, max_lag: int, seconds: float) -> None:
        """For so long a process has reported a watermark that is more than `max_lag` below the highest of its shards (W12)."""
        text = f"{watermark} is reported for {seconds:.1f} s, more than {max_lag} below {highest}"
        self.expect(seconds <= WRITE_SECONDS, "W12", text)

    def check_alignment(self, batch: RecordBatch, value: int | None, lookahead: int | None) -> None:
        """A batch was emitted; `value` is the global watermark that it knew."""
        key, top = batch.shard.key, max(batch.watermarks or ())
        if lookahead is not None:
            self.expect(value is not None, "W8", f"{key} was written before there was a global watermark")
            limit = (value or 0) + lookahead
            self.expect(value is None or top <= limit, "W8", f"{key} at {top}, above {value} + {lookahead}")

    def check_watermark_bound(self, watermark: int, value: int | None) -> None:
        """A sink received a watermark; `value` is the global one that it knew."""
        self.expect(value is not None and watermark <= value, "W1", f"{watermark} is above the global {value}")

    def check_sink_watermark(self, process: int, watermark: int, entries: Iterable[Any]) -> None:
        """The sink of a process received a watermark."""
        before = self._sink_watermarks.get(process)
        self.expect(
            before is None or watermark > before, "W1", f"the sink's watermark fell from {before} to {watermark}"
        )
        self._sink_watermarks[process] = watermark
        for entry in entries:
            if entry.is_active:
                emitted = entry.state.watermark
                self.expect(
                    emitted is not None and watermark <= emitted, "W1", f"{watermark}, {entry.key} at {emitted}"
                )

    def check_idleness(
        self,
        key: str,
        empty_reads: tuple[float, float] | None,
        other_seconds: float,
        interval_ms: int,
        resumed_at: float,
    ) -> None:
        """The job reports a shard as idle; `empty_reads` are the times of the first and the last read in a row that was empty at the tip.
        Without one, the first read that was not has been on its way for `other_seconds` at most.
        """
        if empty_reads is None:
            self.expect(
                other_seconds < ON_THE_WAY_SECONDS, "W3", f"{key} is idle, read behind the tip for {other_seconds} s"
            )
            return
        seconds, last = empty_reads[1] - empty_reads[0], empty_reads[1]
        self.expect(seconds >= interval_ms / 1000 - JITTER_SECONDS, "W3", f"{key} is idle after {seconds:.1f} s")
        self.expect(
            last >= resumed_at,
            "W3",
            f"{key} is idle and was last read {resumed_at - last:.1f} s before the process resumed",
        )

    def exclude(self, keys: Iterable[str]) -> None:
        """Nobody reads these shards any more."""
        self._excluded.update(keys)
        self._count_remaining()

    def check_liveness(self, writable: list[str], seconds: float) -> None:
        """For so long nothing was written, although its queues begin with records of `writable` within the emit limit."""
        text = f"nothing was written for {seconds:.1f} s, although {writable} have records within the emit limit"
        self.expect(seconds <= WRITE_SECONDS, "W9", text)

    def check_queued_bytes(self, queued: int, limit: int) -> None:
        """`queued` bytes are in the queues."""
        self.expect(queued <= limit, "P6", f"{queued} bytes are queued, {limit} allowed")

    # --- inside -------------------------------------------------------------------------------------------------------------------

    def _rewind(self, keys: Iterable[str], counts: dict[str, int]) -> None:
        for key in keys:
            self._done[key] = counts.get(key, 0)
        self._count_remaining()

    def _count_remaining(self) -> None:
        self._remaining = sum(len(self._unwritten(key)) for key in self.stream.shards if key not in self._excluded)

    def _unwritten(self, key: str) -> list[int]:
        return self.stream[key].usable_between(self._done.get(key, 0))

    def _check_lateness(self, key: str, indexes: list[int], value: int | None) -> None:
        stream = self.stream
        own = stream.watermark(key, indexes[0])
        if value is None or (own is not None and own >= value):
            return
        for index in indexes:
            time = stream[key].times[index]
            if time < value and (own is None or time >= own):
                self._late_of[key] = self._late_of.get(key, 0) + 1
                self.late += 1
                is_found_late = stream.plan.inconsistent_listings
                may_be = self._may_cause_late_records or is_found_late or key in stream.merged
                self.expect(
                    may_be,
                    "W13",
                    f"{key}: {time} is below the global watermark {value}, the watermark of its shard was {own}",
                )
            own = stream.watermark(key, index + 1)
