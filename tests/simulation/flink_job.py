"""A job of Flink's subtasks on a schedule: one life, without restarts, judged by the same judge."""

from __future__ import annotations

from dataclasses import replace

from .flink import FlinkSubtask, JobManager
from .job import PATIENCE_SECONDS
from .judge import Judge
from .schedule import Schedule
from .universe import Universe
from .world import World


def run_flink(schedule: Schedule, refreshes_while_idle: bool) -> dict[str, str]:
    """The rules that Flink's break in a schedule, each with the first case. `refreshes_while_idle`: after FLINK-29099."""
    universe, world = Universe(), World(schedule.world)
    judge = Judge(world, is_strict=False)
    life = replace(schedule.lives[-1], disturbances=())
    manager = JobManager(universe, judge)
    judge.begins(life, {})
    subtasks = [
        FlinkSubtask(number, universe, world, life, judge, manager, refreshes_while_idle)
        for number in range(life.parallelism)
    ]
    for each in schedule.lives[-1].disturbances:
        if each.kind == "suspend":
            process = subtasks[each.subtask].process
            universe.after(each.at, lambda process=process, seconds=each.seconds: process.suspend(seconds))
    try:
        universe.run(max(life.storm_ends, world.quiet_from) + PATIENCE_SECONDS, lambda: judge.is_complete)
        for subtask in subtasks:
            assert not subtask.process.failures, subtask.process.failures
        judge.expect(judge.is_complete, "W9", f"calm for {PATIENCE_SECONDS:.0f} s, and only: {judge.missing}")
    finally:
        universe.close()
    return judge.broken
