"""A job on a schedule: processes of both kinds begin, end and take over from each other, over a store with faults."""

from __future__ import annotations

import random
from dataclasses import replace

from recordpublisher.fetcher.checkpoints.state_entries import StateEntry, entry_name

from ..elastic.group_schedule import GroupSchedule, random_schedule
from ..elastic.rule_violation import expect
from ..elastic.shared_store import Faults, SharedStore
from ..elastic.simulated_shards import SimulatedShards
from ..simulator import Simulator
from .simulated_jobs import ElasticJob, SimulatedSubtask
from .takeover_checker import TakeoverChecker

CALM_SECONDS = 1200.0
MAX_PROCESSES = 4
KINDS = {"static": 5, "elastic": 5, "kill": 4, "kill-all": 2, "suspend": 2, "cut-off": 2, "leave": 5, "leave-all": 2}
"""How often each kind of event happens in schedules that are not graceful."""


def schedule_of(seed: int, *, is_graceful: bool) -> GroupSchedule:
    """Of a seed: only its faults, sizes and length count here."""
    schedule = replace(
        random_schedule(seed), is_graceful=is_graceful, is_transactional=False, lookahead=None, records=60, events=()
    )
    draw = random.Random(f"{seed} takeover")
    faults = Faults(draw.choice([0.0, 0.03, 0.06]), 0.0, draw.choice([0.1, 0.4, 1.0]), 12.0, 4.0)
    if not is_graceful:
        faults.suspensions = 0.002
    return replace(
        schedule, roots=draw.randint(1, 4), faults=faults, disturbed_seconds=draw.choice([60.0, 150.0, 300.0])
    )


class SimulatedTakeovers:
    """Owns the simulator of one schedule, and the processes."""

    def __init__(self, seed: int, *, is_graceful: bool = False) -> None:
        self._schedule = schedule = schedule_of(seed, is_graceful=is_graceful)
        self._random = random.Random(f"{seed} events")
        self._simulator = Simulator()
        self._store = SharedStore(self._simulator)
        self._shards = SimulatedShards(random.Random(f"{seed} shards"), schedule.roots, schedule.records)
        self.checker = TakeoverChecker(self._store, allows_repeats=not is_graceful)
        self._processes: list[ElasticJob | SimulatedSubtask] = []
        self._store.put(entry_name(0), StateEntry(1).to_bytes(), None)  # the job was started once

    def run(self) -> TakeoverChecker:
        """Raises: RuleViolationError."""
        simulator, schedule = self._simulator, self._schedule
        try:
            if schedule.is_graceful:
                self._take_turns()
            else:
                self._disturb()
            self._end_all()
            for kind in ("elastic", "static"):
                self._begin(kind)
                self._run(self._random.choice([2, 10, 40]))
                self._end_all()
            schedule.faults.share = schedule.faults.suspensions = 0.0
            self._begin(self._random.choice(["static", "elastic"]))
            end = simulator.now + CALM_SECONDS
            while simulator.now < end and not self._is_done and not self._has_failed():
                simulator.run(simulator.now + 5, self._has_failed)
            self._raise_failures()
            expect(self._is_done, "liveness", f"{self.checker.committed} is committed")
        finally:
            simulator.close()
        return self.checker

    def _take_turns(self) -> None:
        """One kind after the other, each ended before the next: nothing may be written twice."""
        for _ in range(self._random.randint(2, 5)):
            self._begin(self._random.choice(["static", "elastic"]), self._random.randint(1, 2))
            self._run(self._random.choice([5, 20, 60]))
            self._end_all()

    def _disturb(self) -> None:
        """Anything happens at any time, also two takeovers at once."""
        parallelism = self._random.randint(1, 2)  # subtasks of another one are not fenced off, group or not
        self._begin(self._random.choice(["static", "elastic"]), parallelism)
        while self._simulator.now < self._schedule.disturbed_seconds and not self._has_failed():
            self._run(self._random.expovariate(1 / self._random.choice([1, 6, 20])))
            live = [each for each in self._processes if each.is_live]
            kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
            if kind in ("static", "elastic"):
                if len(live) < MAX_PROCESSES:
                    self._begin(kind, parallelism)
            elif kind.endswith("-all"):
                for each in live:
                    each.leave() if kind == "leave-all" else each.process.kill()
                self._run(self._random.choice([0, 2, 25]) * self._random.random())
                self._begin(self._random.choice(["static", "static", "elastic"]), parallelism)
            elif live:
                chosen, seconds = self._random.choice(live), self._random.choice([3, 15, 40]) * self._random.random()
                {
                    "kill": chosen.process.kill,
                    "leave": chosen.leave,
                    "suspend": lambda chosen=chosen, seconds=seconds: chosen.suspend(seconds),
                    "cut-off": lambda chosen=chosen, seconds=seconds: chosen.cut_off(seconds),
                }[kind]()

    def _begin(self, kind: str, count: int = 1) -> None:
        self.checker.counts[kind] += 1
        for number in range(count):
            name = f"{kind}{len(self._processes)}"
            given = (name, self._simulator, self._store, self._shards, self.checker, self._schedule)
            self._processes.append(ElasticJob(*given) if kind == "elastic" else SimulatedSubtask(*given, number, count))

    def _end_all(self) -> None:
        """End every process, and wait until it has ended."""
        for each in self._processes:
            if each.is_live:
                each.leave()
        end = self._simulator.now + CALM_SECONDS
        while (
            self._simulator.now < end
            and not self._has_failed()
            and not all(each.has_left or each.process.is_dead for each in self._processes)
        ):
            self._run(1)
        self._raise_failures()
        expect(all(each.has_left or each.process.is_dead for each in self._processes), "liveness", "does not end")

    @property
    def _is_done(self) -> bool:
        return all(self.checker.committed[key] == shard.records for key, shard in self._shards.by_key.items())

    def _run(self, seconds: float) -> None:
        self._simulator.run(self._simulator.now + seconds, self._has_failed)

    def _has_failed(self) -> bool:
        return self._simulator.has_failed

    def _raise_failures(self) -> None:
        for each in self._processes:
            for failure in each.process.failures:
                raise failure
