"""A random schedule of processes that run alone or in a group: the one of a whole job, with more processes, and lost calls to the store."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

from ..schedule import FAULT_SECONDS, Fault, JobRun, Schedule, random_schedule

LEAST_LOOKAHEAD_MS = 10_000
"""Of a group: with less, each record waits for an exchange of watermarks."""
LAST_KILL_SHARE = 0.2


@dataclass(frozen=True)
class WorkerFault(Fault):
    """Also kill (without a restart), cut-off (each call to the store is lost), cut-off-all (of every process).

    `place`: which process has it.
    """

    place: int = 0

    @property
    def is_repeating(self) -> bool:
        """Whether a group may read something again after it. A process that runs alone does so only after a crash."""
        return self.kind in ("crash", "kill", "suspend", "starve", "cut-off", "cut-off-all", "stall")


@dataclass(frozen=True)
class WorkerRun(JobRun):
    """One run of the job. `is_alone`: one process owns every shard; else `processes` of them share the shards."""

    is_alone: bool = True
    processes: int = 1
    loss: float = 0.0
    """The share of calls to the store that are lost, until the faults end."""
    max_delay: float = 0.02
    """The longest delay of a call, seconds."""

    @property
    def is_faultless(self) -> bool:
        """Whether nothing disturbs a process, and no call is lost."""
        return super().is_faultless and not self.loss and self.max_delay < 1


def random_worker_schedule(seed: int, processes: int | None = None) -> Schedule:
    """The schedule of a seed. `processes`: of each run, else it is drawn."""
    schedule, draw = random_schedule(seed), random.Random(f"{seed} workers")
    runs = [_worker_run(each, draw, processes) for each in schedule.runs]
    last = runs[-1]
    if last.processes > 1 and draw.random() < LAST_KILL_SHARE:
        killed = WorkerFault("kill", draw.uniform(0, FAULT_SECONDS), 0.0, place=draw.randrange(last.processes))
        others = (each for each in last.faults if each.kind == "unlist" or each.place != killed.place)  # type: ignore[attr-defined]
        runs[-1] = replace(last, faults=(*others, killed))
    return replace(schedule, runs=tuple(runs))


def alone_run(job_run: JobRun) -> WorkerRun:
    """The run with one process, and without lost calls."""
    return WorkerRun(**{each.name: getattr(job_run, each.name) for each in fields(JobRun)})


def _worker_run(job_run: JobRun, draw: random.Random, processes: int | None) -> WorkerRun:
    count = processes or draw.randint(1, 3)
    is_alone = draw.random() < (0.8 if count == 1 else 0.35)
    count = 1 if is_alone else count
    has_faults = bool(job_run.faults)
    faults = [
        WorkerFault(each.kind, each.at, each.seconds, each.stream, draw.randrange(count)) for each in job_run.faults
    ]
    for _ in range(draw.randint(0, 2) * has_faults):
        at, seconds = draw.uniform(0, FAULT_SECONDS), draw.choice([0.5, 4.0, 15.0, 40.0])
        kind = draw.choice(["cut-off", "cut-off-all"])
        faults.append(WorkerFault(kind, at, seconds, place=draw.randrange(count)))
    lookahead = job_run.lookahead
    if not is_alone and lookahead is not None:
        lookahead = max(lookahead, LEAST_LOOKAHEAD_MS)
    return replace(
        alone_run(job_run),
        is_alone=is_alone,
        processes=count,
        lookahead=lookahead,
        faults=tuple(faults),
        loss=draw.choice([0.0, 0.05, 0.3]) if has_faults else 0.0,
        max_delay=draw.choice([0.02, 0.2, 3.0]) if has_faults else 0.02,
    )
