"""A whole job on a schedule: its runs, their faults, and the checks at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from recordpublisher.fetcher.watermarks.watermark_tracker import OwnWatermark, WatermarkTracker
from recordpublisher.publishers.properties.properties import Properties

from .checkpoint_history import CheckpointHistory
from .network import Network, OwnWatermarkClient, TrackerClient, TrackerServer
from .rule_checker import RuleChecker
from .schedule import Fault, JobRun, Schedule, random_schedule
from .simulated_stream import SimulatedStream
from .simulator import Clock, Process, Simulator
from .subtask import Subtask, owner_of

COMPLETION_SECONDS = 120.0
"""Virtual seconds after the last fault within which every record must be emitted (W9)."""
CHECK_SECONDS = 0.1
RESTART_SECONDS = 1.0


def run(seed: int) -> RuleChecker:
    """Run the schedule of a seed. Raises: RuleViolationError, naming the rule."""
    return Job(random_schedule(seed)).run()


class Job:
    """Owns the simulator of one schedule, and the running subtasks."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._simulator = Simulator()
        self._stream = SimulatedStream(schedule.stream)
        self._checker = RuleChecker(self._stream)
        self._checkpoints = CheckpointHistory(self._simulator)
        self._network = Network(self._simulator, schedule.seed)
        self._server = TrackerServer(self._simulator, self._network)
        self._shared: OwnWatermark | None = None
        self._running: dict[int, Subtask] = {}
        self._leaving: list[Subtask] = []
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
        if not job_run.keeps_tracker or self._shared is None:
            clock = Clock(self._simulator)
            self._shared = OwnWatermark(parallelism=job_run.parallelism, clock=clock, timeout_ms=10_000)
        if not job_run.keeps_tracker:
            self._server = TrackerServer(self._simulator, self._network)
        self._checker.start_run(job_run, self._checkpoints.counts(self._stream), self._is_disturbed)
        self._network.loss, self._network.max_delay = job_run.loss, job_run.max_delay
        for number in range(job_run.parallelism):
            self._start(number, job_run)
        run_number = self._run_number
        for each in job_run.faults:
            self._simulator.after(
                each.at, lambda each=each: self._apply_fault(each, job_run) if run_number == self._run_number else None
            )
        self._simulator.after(
            job_run.faults_end, lambda: self._end_faults() if run_number == self._run_number else None
        )

    def _complete(self, job_run: JobRun) -> None:
        simulator = self._simulator
        latest = max(simulator.now + job_run.faults_end, self._stream.calm_from) + COMPLETION_SECONDS
        simulator.run(latest, lambda: self._checker.is_complete or self._has_failed())
        self._raise_failures()
        self._checker.expect(
            self._checker.is_complete,
            "W9",
            f"{COMPLETION_SECONDS:.0f} s without faults, and written are only: {self._checker.missing}",
        )

    def _end(self, job_run: JobRun) -> None:
        self._raise_failures()
        self._compare_lateness(job_run)
        self._run_number += 1
        if job_run.crashes:
            for each in self._running.values():
                self._kill(each, is_vanishing=each.number in job_run.vanishing)
            self._simulator.run(self._simulator.now + RESTART_SECONDS)
            self._checkpoints.rewind(job_run.restore_age)
            self._shared = None  # a tracker in the process ends with it
        else:
            stopping = [each.stop() for each in self._running.values()]
            self._simulator.run(self._simulator.now + 120, lambda: all(task.done() for task in stopping))
            self._raise_failures()
            assert all(task.done() for task in stopping), "a subtask does not stop"
            for each in self._running.values():
                each.process.kill()
        for each in self._leaving:
            each.process.kill()
        self._leaving.clear()
        self._running.clear()

    def _compare_lateness(self, job_run: JobRun) -> None:
        """The metric equals the checker's count (W13). Not for children: a remote tracker does not know their parents' watermarks."""
        if any(each.kind in ("crash", "leave", "kill", "unlist") for each in job_run.faults):
            return
        for subtask in self._running.values():
            for entry in subtask.fetcher._table:
                if not entry.emission.is_writing and not entry.shard.parents:
                    counted = self._checker.late_of(entry.key)
                    text = f"{entry.key}: the metric is {entry.emission.late_after_idle}, {counted} were late"
                    self._checker.expect(entry.emission.late_after_idle == counted, "W13", text)

    def _start(self, number: int, job_run: JobRun) -> None:
        self._seed += 1
        self._running[number] = Subtask(
            number,
            self._simulator,
            self._stream,
            job_run,
            self._checker,
            self._checkpoints,
            self._tracker_of,
            self._seed,
            self._is_remote,
            self._listed_streams,
        )

    def _listed_streams(self) -> tuple[str, ...]:
        """The streams of the list now. One that has no shards is always in it: a list is never empty."""
        now = self._simulator.now
        return (*(each for each in self._stream.names if self._absent_until.get(each, 0.0) <= now), "without shards")

    @property
    def _is_disturbed(self) -> bool:
        """Whether a fault of the run before lasts."""
        return self._server.is_disturbed or len(self._listed_streams()) <= len(self._stream.names)

    @property
    def _is_remote(self) -> bool:
        return self._schedule.tracker == "REMOTE"

    def _tracker_of(self, properties: Properties, process: Process) -> WatermarkTracker:
        if self._is_remote:
            return TrackerClient(properties, self._simulator, process, self._network, self._server)
        assert self._shared is not None
        return OwnWatermarkClient(self._shared, process)

    # --- faults -------------------------------------------------------------------------------------------------------------

    def _apply_fault(self, fault: Fault, job_run: JobRun) -> None:
        subtask = self._running.get(fault.subtask)
        on_tracker: dict[str, Callable[[], Any]] = {
            "suspend-tracker": lambda: self._server.suspend(fault.seconds),
            "restart-tracker": lambda: self._server.restart(fault.seconds),
            "unlist": lambda: self._unlist(fault),
        }
        if fault.kind in on_tracker:
            on_tracker[fault.kind]()
        elif subtask is not None:
            on_subtask: dict[str, Callable[[], Any]] = {
                "suspend": lambda: subtask.process.suspend(fault.seconds),
                "starve": lambda: subtask.process.starve(fault.seconds, 0.087),
                "stall": lambda: setattr(subtask.sink, "stall", fault.seconds),
                "crash": lambda: self._crash(subtask, job_run, fault.seconds),
                "kill": lambda: self._kill_permanently(subtask, job_run),
                "leave": lambda: self._leave(subtask, job_run, fault.seconds),
            }
            on_subtask[fault.kind]()

    def _unlist(self, fault: Fault) -> None:
        is_for_ever = fault.seconds < 0
        until = math.inf if is_for_ever else self._simulator.now + fault.seconds
        self._absent_until[fault.stream] = max(self._absent_until.get(fault.stream, 0.0), until)
        if is_for_ever:
            self._checker.exclude(self._stream.of_stream(fault.stream))

    def _crash(self, subtask: Subtask, job_run: JobRun, seconds: float) -> None:
        self._kill(subtask)
        del self._running[subtask.number]
        self._restart_later(subtask.number, job_run, seconds)

    def _kill_permanently(self, subtask: Subtask, job_run: JobRun) -> None:
        """Its shards stay unread, and so do their descendants; the other subtasks continue once it is excluded (W6)."""
        self._kill(subtask)
        del self._running[subtask.number]
        gone = {
            key
            for key, each in self._stream.shards.items()
            if owner_of(each.shard, job_run.parallelism) == subtask.number
        }
        for key in self._stream.shards:
            if any(parent in gone for parent in self._stream.parents(key)):
                gone.add(key)
        self._checker.exclude(gone)

    def _kill(self, subtask: Subtask, is_vanishing: bool = False) -> None:
        subtask.process.kill()
        if not is_vanishing:
            self._server.disconnect(subtask.number)

    def _leave(self, subtask: Subtask, job_run: JobRun, seconds: float) -> None:
        del self._running[subtask.number]
        self._leaving.append(subtask)

        def restart_after_stop(_: object) -> None:
            self._restart_later(subtask.number, job_run, seconds)

        subtask.stop().add_done_callback(restart_after_stop)

    def _restart_later(self, number: int, job_run: JobRun, seconds: float) -> None:
        run_number = self._run_number

        def restart() -> None:
            if run_number == self._run_number:
                owned = [
                    key
                    for key, each in self._stream.shards.items()
                    if owner_of(each.shard, job_run.parallelism) == number
                ]
                self._checker.restart_subtask(number, owned, self._checkpoints.counts(self._stream))
                self._start(number, job_run)

        self._simulator.after(seconds, restart)

    def _end_faults(self) -> None:
        self._network.loss, self._network.max_delay = 0.0, 0.02

    # --- checks --------------------------------------------------------------------------------------------------------------

    def _check_regularly(self) -> None:
        if self._is_remote:
            coordinator = self._server.coordinator
            self._checker.check_global_watermark(
                (coordinator.coordinator_id, coordinator.generation), coordinator.global_watermark
            )
        elif self._shared is not None:
            self._checker.check_global_watermark(id(self._shared._group), self._shared.current())
        for subtask in self._running.values():
            subtask.check_liveness()
        self._simulator.after(CHECK_SECONDS, self._check_regularly)

    def _has_failed(self) -> bool:
        return any(each.process.failures for each in self._running.values())

    def _raise_failures(self) -> None:
        for each in self._running.values():
            for failure in each.process.failures:
                raise failure
