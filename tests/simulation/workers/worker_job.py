"""A whole job on a schedule, whose runs are those of a process alone or of a group of workers: its faults, and the checks at the end."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Any

from ..elastic.shared_store import SharedStore
from ..rule_checker import RuleChecker
from ..schedule import Schedule
from ..simulated_stream import SimulatedStream
from ..simulator import Simulator
from .simulated_worker import SimulatedWorker
from .worker_schedule import WorkerFault, WorkerRun, random_worker_schedule

COMPLETION_SECONDS = {True: 260.0, False: 900.0}
"""Virtual seconds after the last fault within which every record must be emitted, alone and in a group (W9).

A start that waits for the leases of a former group, or for a rival, is in it. In a group an exchange of watermarks takes up to two seconds.
"""
CHECK_SECONDS = 0.1


def run(seed: int) -> RuleChecker:
    """Run the schedule of a seed. Raises: RuleViolationError, naming the rule."""
    before = random.getstate()
    random.seed(seed)  # the jitter of retries
    try:
        return WorkerJob(random_worker_schedule(seed)).run()
    finally:
        random.setstate(before)


class WorkerJob:
    """Owns the simulator of one schedule, the store, and the running processes."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._simulator = Simulator()
        self._stream = SimulatedStream(schedule.stream)
        self._checker = RuleChecker(self._stream)
        self._store = SharedStore(self._simulator)
        self._running: dict[int, SimulatedWorker] = {}
        self._leaving: dict[SimulatedWorker, asyncio.Task[Any]] = {}
        """Processes that stop, and when each has stopped."""
        self._number = 0
        self._run_number = 0
        self._is_alone = False
        self._has_restarted = False
        self._is_calm = False
        """Whether the faults of the run are over."""
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
        finally:
            self._simulator.close()
        return self._checker

    # --- runs --------------------------------------------------------------------------------------------------------------------

    def _begin(self, job_run: WorkerRun) -> None:
        self._run_number += 1
        self._is_calm = self._has_restarted = False
        self._is_alone = job_run.is_alone
        self._checker.start_workers(job_run)
        for place in range(job_run.processes):
            self._start(place, job_run)
        number = self._run_number
        for each in job_run.faults:
            self._simulator.after(each.at, lambda each=each: self._apply_fault(each, job_run, number))
        self._simulator.after(job_run.faults_end, lambda: self._end_faults(number))

    def _complete(self, job_run: WorkerRun) -> None:
        simulator, seconds = self._simulator, COMPLETION_SECONDS[self._is_alone]
        latest = max(simulator.now + job_run.faults_end, self._stream.calm_from) + seconds
        ends = self._is_alone and self._stream.plan.is_finite
        simulator.run(latest, lambda: (self._has_ended if ends else self._checker.is_complete) or self._has_failed())
        self._raise_failures()
        text = f"{seconds:.0f} s without faults, and written are only: {self._checker.missing}"
        self._checker.expect(self._checker.is_complete, "W9", text)
        self._checker.expect(
            self._has_ended == ends, "S8", "the job does not end although every shard was read to its end"
        )
        self._end(job_run)

    def _end(self, job_run: WorkerRun) -> None:
        self._raise_failures()
        self._compare_lateness(job_run)
        self._run_number += 1
        if job_run.crashes:
            self._checker.may_repeat = True
        else:
            # A process that left during the run may be stopping still. Killed before its last checkpoint, it would be a crash.
            for each in self._running.values():
                self._stop(each)
            stopping = self._leaving.values()
            self._simulator.run(self._simulator.now + 240, lambda: all(task.done() for task in stopping))
            self._raise_failures()
            assert all(task.done() for task in stopping), "a process does not stop"
        for each in self._processes:
            each.process.kill()
        self._leaving.clear()
        self._running.clear()

    def _compare_lateness(self, job_run: WorkerRun) -> None:
        """The metric equals the checker's count (W13), where one process has read everything.

        Not for merged shards: what they inherit depends on which of their parents was listed first.
        """
        if (
            not self._is_alone
            or self._has_restarted
            or any(each.kind in ("crash", "leave", "kill", "unlist") for each in job_run.faults)
        ):
            return
        for worker in self._running.values():
            for entry in worker.fetcher._table:
                if not entry.emission.is_writing and entry.key not in self._stream.merged:
                    counted = self._checker.late_of(entry.key)
                    text = f"{entry.key}: the metric is {entry.metrics.late_after_idle}, {counted} were late"
                    self._checker.expect(entry.metrics.late_after_idle == counted, "W13", text)

    def _start(self, place: int, job_run: WorkerRun) -> None:
        self._number += 1
        self._running[place] = SimulatedWorker(
            self._number,
            self._simulator,
            self._stream,
            job_run,
            self._checker,
            self._store,
            self._schedule.seed * 1000 + self._number,
            self._listed_streams,
        )
        if self._is_calm:
            self._running[place].calm()

    def _listed_streams(self) -> tuple[str, ...]:
        """The streams of the list now. One that has no shards is always in it: a list is never empty."""
        now = self._simulator.now
        return (*(each for each in self._stream.names if self._absent_until.get(each, 0.0) <= now), "without shards")

    # --- faults -------------------------------------------------------------------------------------------------------------

    def _apply_fault(self, fault: WorkerFault, job_run: WorkerRun, run_number: int) -> None:
        if run_number != self._run_number:
            return
        self._checker.may_repeat |= fault.is_repeating and (not self._is_alone or fault.kind == "crash")
        worker = self._running.get(fault.place)
        if fault.kind == "unlist":
            self._unlist(fault)
        elif fault.kind == "cut-off-all":
            for each in self._running.values():
                each.cut_off(fault.seconds)
        elif worker is not None:
            on_worker: dict[str, Callable[[], Any]] = {
                "suspend": lambda: worker.process.suspend(fault.seconds),
                "starve": lambda: worker.process.starve(fault.seconds, 0.087),
                "stall": lambda: setattr(worker.sink, "stall", fault.seconds),
                "cut-off": lambda: worker.cut_off(fault.seconds),
                "crash": lambda: self._crash(fault, job_run),
                "kill": lambda: self._kill(fault),
                "leave": lambda: self._leave(fault, job_run),
            }
            on_worker[fault.kind]()

    def _unlist(self, fault: WorkerFault) -> None:
        is_for_ever = fault.seconds < 0
        until = math.inf if is_for_ever else self._simulator.now + fault.seconds
        self._absent_until[fault.stream] = max(self._absent_until.get(fault.stream, 0.0), until)
        if is_for_ever:
            self._checker.exclude(self._stream.of_stream(fault.stream))

    def _crash(self, fault: WorkerFault, job_run: WorkerRun) -> None:
        self._kill(fault)
        self._restart_later(fault, job_run)

    def _kill(self, fault: WorkerFault) -> None:
        self._running.pop(fault.place).process.kill()

    def _leave(self, fault: WorkerFault, job_run: WorkerRun) -> None:
        def restart_after_stop(_: asyncio.Task[Any]) -> None:
            self._restart_later(fault, job_run)

        self._stop(self._running.pop(fault.place)).add_done_callback(restart_after_stop)

    def _stop(self, worker: SimulatedWorker) -> asyncio.Task[Any]:
        worker.calm()
        self._leaving[worker] = worker.stop()
        return self._leaving[worker]

    @property
    def _processes(self) -> list[SimulatedWorker]:
        return list(dict.fromkeys([*self._running.values(), *self._leaving]))

    def _restart_later(self, fault: WorkerFault, job_run: WorkerRun) -> None:
        run_number = self._run_number

        def restart() -> None:
            if run_number == self._run_number:
                self._start(fault.place, job_run)

        self._simulator.after(fault.seconds, restart)

    def _end_faults(self, run_number: int) -> None:
        if run_number == self._run_number:
            self._is_calm = True
            for each in self._running.values():
                each.calm()

    # --- checks --------------------------------------------------------------------------------------------------------------

    def _check_regularly(self) -> None:
        for place, worker in [*self._running.items()]:
            worker.check_global_watermark()
            worker.check_liveness()
            if worker.must_restart:
                worker.process.kill()
                self._start(place, worker.job_run)
                self._has_restarted = True
        self._simulator.after(CHECK_SECONDS, self._check_regularly)

    @property
    def _has_ended(self) -> bool:
        return any(each.has_ended for each in self._running.values())

    def _has_failed(self) -> bool:
        return any(each.process.failures for each in self._running.values())

    def _raise_failures(self) -> None:
        for each in self._processes:
            for failure in each.process.failures:
                raise failure
