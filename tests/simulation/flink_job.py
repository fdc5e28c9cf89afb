"""A job with the subtasks of Flink's connector on a schedule: one run, without restarts, with the same checks."""

from __future__ import annotations

from dataclasses import replace

from .flink_subtask import FlinkSubtask, JobManager
from .job import COMPLETION_SECONDS
from .rule_checker import RuleChecker
from .schedule import Schedule
from .simulated_stream import SimulatedStream
from .simulator import Simulator


def run_flink(schedule: Schedule, refreshes_while_idle: bool) -> dict[str, str]:
    """The rules that Flink's connector breaks in a schedule, each with the first case. `refreshes_while_idle`: after FLINK-29099."""
    plan = replace(schedule.stream, inconsistent_listings=False, extreme_times=False)
    simulator, stream = Simulator(), SimulatedStream(plan)
    checker = RuleChecker(stream, is_strict=False)
    job_run = replace(schedule.runs[-1], faults=())
    manager = JobManager(simulator, checker)
    checker.start_run(job_run, {})
    subtasks = [
        FlinkSubtask(number, simulator, stream, job_run, checker, manager, refreshes_while_idle)
        for number in range(job_run.parallelism)
    ]
    for each in schedule.runs[-1].faults:
        if each.kind == "suspend":
            process = subtasks[each.subtask].process
            simulator.after(each.at, lambda process=process, seconds=each.seconds: process.suspend(seconds))
    try:
        simulator.run(max(job_run.faults_end, stream.calm_from) + COMPLETION_SECONDS, lambda: checker.is_complete)
        for subtask in subtasks:
            assert not subtask.process.failures, subtask.process.failures
        checker.expect(
            checker.is_complete,
            "W9",
            f"{COMPLETION_SECONDS:.0f} s without faults, and written are only: {checker.missing}",
        )
    finally:
        simulator.close()
    return checker.broken
