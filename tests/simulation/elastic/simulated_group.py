"""A whole group on a schedule: its processes, their faults, and the checks at the end."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..simulator import Simulator
from .group_checker import GroupChecker, expect
from .group_schedule import GroupEvent, GroupSchedule, random_schedule
from .shared_store import SharedStore
from .simulated_process import SimulatedProcess
from .simulated_shards import SimulatedShards
from .sink_database import SinkDatabase

CALM_SECONDS, SETTLED_SECONDS = 1200.0, 60.0
"""After the faults end: within which time everything must be read and balanced; and for how long nothing may move then."""
CHECK_SECONDS, HANDOVER_SECONDS = 5.0, 20.0
"""A hand-over that an earlier plan has begun may still be under way when the shares are equal, and nothing is released yet."""
MAX_PROCESSES = 6


def run(seed: int) -> GroupChecker:
    """Run the schedule of a seed. Raises: RuleViolationError, naming the rule."""
    return SimulatedGroup(random_schedule(seed)).run()


class SimulatedGroup:
    """Owns the simulator of one schedule, and the processes."""

    def __init__(self, schedule: GroupSchedule) -> None:
        self._schedule = schedule
        self._simulator = Simulator()
        self._store = SharedStore(self._simulator)
        self._shards = SimulatedShards(
            random.Random(f"{schedule.seed} shards"), schedule.roots, schedule.records, schedule.loads
        )
        self._database = SinkDatabase(self._simulator, self._shards) if schedule.is_transactional else None
        self.checker = GroupChecker(
            self._simulator, self._store, self._shards, not schedule.is_graceful, self._database, schedule.is_latest
        )
        self._processes: list[SimulatedProcess] = []

    def run(self) -> GroupChecker:
        schedule, simulator = self._schedule, self._simulator
        try:
            for _ in range(schedule.workers):
                self._join()
            for at in schedule.traffic_changes:
                simulator.at(at, self._shards.change_traffic)
            for event in schedule.events:
                simulator.at(event.at, lambda event=event: self._apply(event))
            if schedule.quiet is not None:
                begin, end = schedule.quiet
                simulator.at(begin, lambda: self._expect_no_takes_until(end))
            simulator.run(schedule.disturbed_seconds, self._has_failed)
            if schedule.seals is not None and not self._has_failed():
                found = self.checker.counts["sealed"]
                expect(found == schedule.seals, "E3", f"{found} workers are sealed instead of {schedule.seals}")
            schedule.faults.share = schedule.faults.suspensions = 0.0
            if not self._live:
                self._join()
            self._settle()
            self._raise_failures()
        finally:
            simulator.close()
        return self.checker

    def _settle(self) -> None:
        """Run until everything is read, balanced and cleaned; then on, to see that nothing moves.

        First a worker that was suspended or cut off until now may still be sealed.
        """
        simulator, checker = self._simulator, self.checker
        while not self._has_failed() and any(each.is_disturbed for each in self._processes if not each.process.is_dead):
            simulator.run(simulator.now + CHECK_SECONDS, self._has_failed)
        simulator.run(simulator.now + SETTLED_SECONDS, self._has_failed)
        end, complete_since = simulator.now + CALM_SECONDS, simulator.now
        # shares may be equal for a moment, between two hand-overs
        while simulator.now < min(end, complete_since + HANDOVER_SECONDS) and not self._has_failed():
            simulator.run(simulator.now + CHECK_SECONDS, self._has_failed)
            complete_since = simulator.now if self._missing else complete_since
        self._raise_failures()
        expect(not self._missing, "liveness", self._missing)
        takes = checker.counts["takes"]
        simulator.run(simulator.now + SETTLED_SECONDS, self._has_failed)
        expect(checker.counts["takes"] == takes, "E6", "shards still move")

    @property
    def _missing(self) -> str:
        if not all(each.has_left or each.process.is_dead for each in self._processes if each.is_leaving):
            return "a worker does not leave"
        return self.checker.what_is_missing({each.worker.name for each in self._live if each.worker is not None})

    @property
    def _live(self) -> list[SimulatedProcess]:
        return [each for each in self._processes if each.is_live]

    def _join(self) -> None:
        name = f"w{len(self._processes)}"
        self._processes.append(
            SimulatedProcess(
                name, self._simulator, self._store, self._database, self._shards, self.checker, self._schedule
            )
        )

    def _apply(self, event: GroupEvent) -> None:
        live = self._live
        to_group: dict[str, Callable[[], object]] = {
            "join": lambda: self._join() if len(live) < MAX_PROCESSES else None,
            "reshard": self._shards.reshard,
            "split": lambda: self._shards.split(event.choice),
            "cut-off-all": lambda: [each.cut_off(event.seconds) for each in live],
            "leave-all": lambda: [each.leave() for each in live],
            "crash-all": lambda: [each.process.kill() for each in live],
            "delete": lambda: (self._shards.delete(), self.checker.on_stream_deleted()),
            "make-again": self._shards.make_again,
            "expire": lambda: (self._shards.expire(self.checker.committed), self.checker.on_expired()),
            "pause": lambda: None,
        }
        to_one: dict[str, Callable[[SimulatedProcess], object]] = {
            "leave": lambda chosen: chosen.leave(),
            "crash": lambda chosen: chosen.process.kill(),
            "cut-off": lambda chosen: chosen.cut_off(event.seconds),
            "suspend": lambda chosen: chosen.suspend(event.seconds),
            "sleep": lambda chosen: (chosen.cut_off(event.seconds * 2), chosen.suspend(event.seconds)),
        }
        self.checker.counts[event.kind] += 1
        if event.kind in to_group:
            to_group[event.kind]()
        elif live:
            to_one[event.kind](live[int(event.choice * len(live))])

    def _expect_no_takes_until(self, end: float) -> None:
        """Raises in the run: RuleViolationError."""
        before = self.checker.counts["takes"]
        self._simulator.at(end, lambda: expect(self.checker.counts["takes"] == before, "E6", "shards moved"))

    def _has_failed(self) -> bool:
        return self._simulator.has_failed

    def _raise_failures(self) -> None:
        for each in self._processes:
            for failure in each.process.failures:
                raise failure
