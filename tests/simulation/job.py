"""A whole job on a schedule: its lives, what disturbs them, and what must be true at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.watermark_tracker import WatermarkTracker
from recordpublisher.publishers.properties.properties import Properties

from .judge import Judge
from .network import LocalClient, Network, TrackerClient, TrackerServer
from .schedule import Disturbance, Life, Schedule, drawn
from .shelf import Shelf
from .subtask import Subtask, owner_of
from .universe import Clock, Process, Universe
from .world import World

PATIENCE_SECONDS = 120.0
"""Virtual seconds after the last disturbance in which everything must be emitted (W9)."""
WATCH_SECONDS = 0.1
RESTART_SECONDS = 1.0


def run(seed: int) -> Judge:
    """Run the schedule of a seed. Raises: BrokenRuleError, naming the rule."""
    return Job(drawn(seed)).run()


class Job:
    """Owns the universe of one schedule, and who is alive in it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._universe = Universe()
        self._world = World(schedule.world)
        self._judge = Judge(self._world)
        self._shelf = Shelf(self._universe)
        self._network = Network(self._universe, schedule.seed)
        self._server = TrackerServer(self._universe, self._network)
        self._shared: InProcessTracker | None = None
        self._alive: dict[int, Subtask] = {}
        self._leaving: list[Subtask] = []
        self._seed = schedule.seed
        self._life_number = 0

    def run(self) -> Judge:
        try:
            *early, last = self._schedule.lives
            self._universe.after(WATCH_SECONDS, self._watch)
            for life in early:
                self._begin(life)
                self._universe.run(self._universe.now + life.seconds, self._has_failed)
                self._end(life)
            self._begin(last)
            self._complete(last)
            self._end(last)
        finally:
            self._universe.close()
        return self._judge

    # --- lives --------------------------------------------------------------------------------------------------------------------

    def _begin(self, life: Life) -> None:
        self._life_number += 1
        if not life.keeps_tracker or self._shared is None:
            clock = Clock(self._universe)
            self._shared = InProcessTracker(parallelism=life.parallelism, clock=clock, timeout_ms=10_000)
        if not life.keeps_tracker:
            self._server = TrackerServer(self._universe, self._network)
        self._judge.begins(life, self._shelf.counts(self._world))
        self._network.loss, self._network.max_delay = life.loss, life.slowest
        for number in range(life.parallelism):
            self._start(number, life)
        mine = self._life_number
        for each in life.disturbances:
            self._universe.after(
                each.at, lambda each=each: self._disturb(each, life) if mine == self._life_number else None
            )
        self._universe.after(life.storm_ends, lambda: self._calm_down() if mine == self._life_number else None)

    def _complete(self, life: Life) -> None:
        universe = self._universe
        latest = max(universe.now + life.storm_ends, self._world.quiet_from) + PATIENCE_SECONDS
        universe.run(latest, lambda: self._judge.is_complete or self._has_failed())
        self._raise_failures()
        self._judge.expect(
            self._judge.is_complete, "W9", f"calm for {PATIENCE_SECONDS:.0f} s, and only: {self._judge.missing}"
        )

    def _end(self, life: Life) -> None:
        self._raise_failures()
        self._compare_lateness(life)
        self._life_number += 1
        if life.crashes:
            for each in self._alive.values():
                self._kill(each)
            self._universe.run(self._universe.now + RESTART_SECONDS)
            self._shelf.rewind(life.restore_age)
            self._shared = None  # it lived in the process
        else:
            stopping = [each.stop() for each in self._alive.values()]
            self._universe.run(self._universe.now + 120, lambda: all(task.done() for task in stopping))
            self._raise_failures()
            assert all(task.done() for task in stopping), "a subtask does not stop"
            for each in self._alive.values():
                each.process.kill()
        for each in self._leaving:
            each.process.kill()
        self._leaving.clear()
        self._alive.clear()

    def _compare_lateness(self, life: Life) -> None:
        """The metric says what the judge has counted (W13); of children the judge knows more than a remote tracker tells."""
        if any(each.kind in ("crash", "leave", "die") for each in life.disturbances):
            return
        for subtask in self._alive.values():
            for entry in subtask.fetcher._table:
                if not entry.is_writing and not entry.shard.parents:
                    counted = self._judge.late_of(entry.key)
                    text = f"{entry.key}: the metric says {entry.late_after_idle}, {counted} were late"
                    self._judge.expect(entry.late_after_idle == counted, "W13", text)

    def _start(self, number: int, life: Life) -> None:
        self._seed += 1
        self._alive[number] = Subtask(
            number,
            self._universe,
            self._world,
            life,
            self._judge,
            self._shelf,
            self._tracker_of,
            self._seed,
            self._is_remote,
        )

    @property
    def _is_remote(self) -> bool:
        return self._schedule.tracker == "REMOTE"

    def _tracker_of(self, properties: Properties, process: Process) -> WatermarkTracker:
        if self._is_remote:
            return TrackerClient(properties, self._universe, process, self._network, self._server)
        assert self._shared is not None
        return LocalClient(self._shared, process)

    # --- disturbances -------------------------------------------------------------------------------------------------------------

    def _disturb(self, what: Disturbance, life: Life) -> None:
        subtask = self._alive.get(what.subtask)
        on_tracker: dict[str, Callable[[], Any]] = {
            "tracker-sleeps": lambda: self._server.sleep(what.seconds),
            "tracker-restarts": lambda: self._server.restart(what.seconds),
        }
        if what.kind in on_tracker:
            on_tracker[what.kind]()
        elif subtask is not None:
            on_subtask: dict[str, Callable[[], Any]] = {
                "suspend": lambda: subtask.process.suspend(what.seconds),
                "starve": lambda: subtask.process.starve(what.seconds, 0.087),
                "stall": lambda: setattr(subtask.sink, "stall", what.seconds),
                "crash": lambda: self._crash(subtask, life, what.seconds),
                "die": lambda: self._die(subtask, life),
                "leave": lambda: self._leave(subtask, life, what.seconds),
            }
            on_subtask[what.kind]()

    def _crash(self, subtask: Subtask, life: Life, seconds: float) -> None:
        self._kill(subtask)
        del self._alive[subtask.number]
        self._come_back(subtask.number, life, seconds)

    def _die(self, subtask: Subtask, life: Life) -> None:
        """Its shards stay unread, and so do their descendants; everybody else goes on once it was left out (W6)."""
        self._kill(subtask)
        del self._alive[subtask.number]
        gone = {
            key for key, each in self._world.shards.items() if owner_of(each.shard, life.parallelism) == subtask.number
        }
        for key in self._world.shards:
            if any(parent in gone for parent in self._world.parents(key)):
                gone.add(key)
        self._judge.excuse(gone)

    def _kill(self, subtask: Subtask) -> None:
        subtask.process.kill()
        self._server.lose(subtask.number)

    def _leave(self, subtask: Subtask, life: Life, seconds: float) -> None:
        del self._alive[subtask.number]
        self._leaving.append(subtask)

        def left(_: object) -> None:
            self._come_back(subtask.number, life, seconds)

        subtask.stop().add_done_callback(left)

    def _come_back(self, number: int, life: Life, seconds: float) -> None:
        mine = self._life_number

        def back() -> None:
            if mine == self._life_number:
                owned = [
                    key for key, each in self._world.shards.items() if owner_of(each.shard, life.parallelism) == number
                ]
                self._judge.restarts(number, owned, self._shelf.counts(self._world))
                self._start(number, life)

        self._universe.after(seconds, back)

    def _calm_down(self) -> None:
        self._network.loss, self._network.max_delay = 0.0, 0.02

    # --- what is watched ------------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._is_remote:
            coordinator = self._server.coordinator
            self._judge.global_watermark(
                (coordinator.coordinator_id, coordinator.generation), coordinator.global_watermark
            )
        elif self._shared is not None:
            self._judge.global_watermark(id(self._shared._group), self._shared.current())
        self._universe.after(WATCH_SECONDS, self._watch)

    def _has_failed(self) -> bool:
        return any(each.process.failures for each in self._alive.values())

    def _raise_failures(self) -> None:
        for each in self._alive.values():
            for failure in each.process.failures:
                raise failure
