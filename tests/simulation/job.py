"""A whole job that runs alone, on a schedule: its runs, their faults, and the checks at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .checkpoint_history import CheckpointHistory
from .rule_checker import RuleChecker
from .schedule import Fault, JobRun, Schedule, random_schedule
from .simulated_stream import SimulatedStream
from .simulator import Simulator
from .start import Start

COMPLETION_SECONDS = 120.0
"""Virtual seconds after the last fault within which every record must be emitted (W9)."""
CHECK_SECONDS = 0.1
RESTART_SECONDS = 1.0


def run(seed: int) -> RuleChecker:
    """Run the schedule of a seed. Raises: RuleViolationError, naming the rule."""
    return Job(random_schedule(seed)).run()


class Job:
    """Owns the simulator of one schedule, and the start that runs now. None while the job is down."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._simulator = Simulator()
        self._stream = SimulatedStream(schedule.stream)
        self._checker = RuleChecker(self._stream)
        self._checkpoints = CheckpointHistory(self._simulator)
        self._running: Start | None = None
        self._leaving: list[Start] = []
        self._seed = schedule.seed
        self._run_number = 0
        self._absent_until: dict[str, float] = {}

    def run(self) -> RuleChecker:
        try:
            *early, last = self._schedule.runs
            self._simulator.after(CHECK_SECONDS, self._check_regularly)
            for job_run in early:
                self._begin(job_run)
                self._simulator.run(self._simulator.now + job_run.seconds, self._has_failed)
                self._end(job_run)
            self._begin(last)
            self._complete(last)
            self._end(last)
        finally:
            self._simulator.close()
        return self._checker

    # --- runs --------------------------------------------------------------------------------------------------------------------

    def _begin(self, job_run: JobRun) -> None:
        self._run_number += 1
        self._checker.start_run(job_run, self._checkpoints.counts(self._stream), self._is_disturbed)
        self._start(job_run)
        run_number = self._run_number
        for each in job_run.faults:
            self._simulator.after(
                each.at, lambda each=each: self._apply_fault(each, job_run) if run_number == self._run_number else None
            )

    def _complete(self, job_run: JobRun) -> None:
        simulator = self._simulator
        latest = max(simulator.now + job_run.faults_end, self._stream.calm_from) + COMPLETION_SECONDS
        is_finite = self._stream.plan.is_finite
        simulator.run(
            latest, lambda: (self._has_ended if is_finite else self._checker.is_complete) or self._has_failed()
        )
        self._raise_failures()
        self._checker.expect(
            self._checker.is_complete,
            "W9",
            f"{COMPLETION_SECONDS:.0f} s without faults, and written are only: {self._checker.missing}",
        )
        self._checker.expect(
            self._has_ended == is_finite, "S8", "the job does not end although every shard was read to its end"
        )

    def _end(self, job_run: JobRun) -> None:
        self._raise_failures()
        self._compare_lateness(job_run)
        self._run_number += 1
        if job_run.crashes:
            if self._running is not None:
                self._running.process.kill()
            self._simulator.run(self._simulator.now + RESTART_SECONDS)
            self._checkpoints.rewind(job_run.restore_age)
        elif self._running is not None:
            stopping = self._running.stop()
            self._simulator.run(self._simulator.now + 120, stopping.done)
            self._raise_failures()
            assert stopping.done(), "the job does not stop"
            self._running.process.kill()
        for each in self._leaving:
            each.process.kill()
        self._leaving.clear()
        self._running = None

    def _compare_lateness(self, job_run: JobRun) -> None:
        """The metric equals the checker's count (W13)."""
        if self._running is None or any(each.kind in ("crash", "leave", "unlist") for each in job_run.faults):
            return
        for entry in self._running.fetcher._table:
            if not entry.emission.is_writing and not entry.shard.parents:
                counted = self._checker.late_of(entry.key)
                text = f"{entry.key}: the metric is {entry.metrics.late_after_idle}, {counted} were late"
                self._checker.expect(entry.metrics.late_after_idle == counted, "W13", text)

    def _start(self, job_run: JobRun) -> None:
        self._seed += 1
        self._running = Start(
            self._simulator,
            self._stream,
            job_run,
            self._checker,
            self._checkpoints,
            self._seed,
            self._listed_streams,
        )

    def _listed_streams(self) -> tuple[str, ...]:
        """The streams of the list now. One that has no shards is always in it: a list is never empty."""
        now = self._simulator.now
        return (*(each for each in self._stream.names if self._absent_until.get(each, 0.0) <= now), "without shards")

    @property
    def _is_disturbed(self) -> bool:
        """Whether a fault of the run before lasts."""
        return len(self._listed_streams()) <= len(self._stream.names)

    # --- faults -------------------------------------------------------------------------------------------------------------

    def _apply_fault(self, fault: Fault, job_run: JobRun) -> None:
        running = self._running
        if fault.kind == "unlist":
            self._unlist(fault)
        elif running is not None:
            on_process: dict[str, Callable[[], Any]] = {
                "suspend": lambda: running.process.suspend(fault.seconds),
                "starve": lambda: running.process.starve(fault.seconds, 0.087),
                "stall": lambda: setattr(running.sink, "stall", fault.seconds),
                "crash": lambda: self._crash(running, job_run, fault.seconds),
                "leave": lambda: self._leave(running, job_run, fault.seconds),
            }
            on_process[fault.kind]()

    def _unlist(self, fault: Fault) -> None:
        is_for_ever = fault.seconds < 0
        until = math.inf if is_for_ever else self._simulator.now + fault.seconds
        self._absent_until[fault.stream] = max(self._absent_until.get(fault.stream, 0.0), until)
        if is_for_ever:
            self._checker.exclude(self._stream.of_stream(fault.stream))

    def _crash(self, running: Start, job_run: JobRun, seconds: float) -> None:
        running.process.kill()
        self._running = None
        self._restart_later(job_run, seconds)

    def _leave(self, running: Start, job_run: JobRun, seconds: float) -> None:
        self._running = None
        self._leaving.append(running)

        def restart_after_stop(_: object) -> None:
            self._restart_later(job_run, seconds)

        running.stop().add_done_callback(restart_after_stop)

    def _restart_later(self, job_run: JobRun, seconds: float) -> None:
        run_number = self._run_number

        def restart() -> None:
            if run_number == self._run_number:
                self._checker.restart(self._checkpoints.counts(self._stream))
                self._start(job_run)

        self._simulator.after(seconds, restart)

    # --- checks --------------------------------------------------------------------------------------------------------------

    def _check_regularly(self) -> None:
        if self._running is not None:
            self._checker.check_global_watermark(id(self._running), self._running.tracker.current())
            self._running.check_liveness()
        self._simulator.after(CHECK_SECONDS, self._check_regularly)

    @property
    def _has_ended(self) -> bool:
        return self._running is not None and self._running.has_ended

    def _has_failed(self) -> bool:
        return self._running is not None and bool(self._running.process.failures)

    def _raise_failures(self) -> None:
        if self._running is not None:
            for failure in self._running.process.failures:
                raise failure
