"""What is between subtasks and tracker: messages that are lost, late, doubled and out of order; a tracker that sleeps and restarts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import Statement
from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.remote_tracker import RemoteTracker
from recordpublisher.fetcher.coordination.watermark_tracker import WatermarkTracker
from recordpublisher.publishers.properties.properties import Properties

from .universe import Clock, Process, Universe

LOOK_SECONDS = 0.5
BATCH_SECONDS = 0.01
CLOSE_SECONDS = 0.05


class Network:
    """Carries messages; rough until told to be calm."""

    def __init__(self, universe: Universe, seed: int) -> None:
        self._universe = universe
        self._random = random.Random(seed)
        self.loss, self.slowest = 0.0, 0.02

    def carry(self, deliver: Callable[[], None]) -> None:
        draw = self._random
        if draw.random() < self.loss:
            return
        for _ in range(2 if draw.random() < self.loss / 4 else 1):
            self._universe.after(draw.uniform(0.001, self.slowest), deliver)


class TrackerServer:
    """The machine that the coordinator runs on."""

    def __init__(self, universe: Universe, network: Network) -> None:
        self._universe = universe
        self._network = network
        self._identities = itertools.count(1)
        self._coordinator = Coordinator(next(self._identities))
        self._replies: dict[int, Callable[[Any], None]] = {}
        self._taken: dict[int, int] = {}
        self._asleep_until = self._down_until = 0.0
        self._is_due = False
        universe.after(LOOK_SECONDS, self._look)

    @property
    def coordinator(self) -> Coordinator:
        return self._coordinator

    def sleep(self, seconds: float) -> None:
        self._asleep_until = max(self._asleep_until, self._universe.now + seconds)

    def restart(self, seconds: float) -> None:
        """Everything that it knew is gone, and it takes nothing meanwhile."""
        self._coordinator = Coordinator(next(self._identities))
        self._down_until = self._universe.now + min(seconds, 15.0)

    def lose(self, subtask: int) -> None:
        """The connection of a killed process is closed by its machine."""
        counter = self._taken.get(subtask)
        if counter is not None:
            self._universe.after(CLOSE_SECONDS, lambda: self._coordinator.lost(subtask, counter))

    def take(self, said: Statement, reply: Callable[[Any], None]) -> None:
        now = self._universe.now
        if now < self._down_until:
            return
        if now < self._asleep_until:  # it waits in the socket's buffer
            self._universe.at(self._asleep_until, lambda: self.take(said, reply))
            return
        self._replies[said.subtask] = reply
        self._taken[said.subtask] = max(said.counter, self._taken.get(said.subtask, 0))
        answer = self._coordinator.take(said, now * 1000)
        self._network.carry(lambda: reply(answer))
        if not self._is_due:
            self._is_due = True
            self._universe.after(BATCH_SECONDS, self._tell)

    def _tell(self) -> None:
        self._is_due = False
        if self._universe.now < max(self._asleep_until, self._down_until):
            return
        for subtask, answer in self._coordinator.due():
            if subtask in self._replies:
                self._send(self._replies[subtask], answer)

    def _send(self, reply: Callable[[Any], None], answer: Any) -> None:
        self._network.carry(lambda: reply(answer))

    def _look(self) -> None:
        if self._universe.now >= max(self._asleep_until, self._down_until):
            self._coordinator.look(self._universe.now * 1000)
            self._tell()
        self._universe.after(LOOK_SECONDS, self._look)


class TrackerClient(RemoteTracker):
    """A subtask's tracker, over the network."""

    def __init__(
        self, properties: Properties, universe: Universe, process: Process, network: Network, server: TrackerServer
    ) -> None:
        super().__init__(properties, Clock(universe))
        self._process = process
        self._network = network
        self._server = server

    def send(self, statement: Statement) -> None:
        if not self._process.is_dead:
            self._network.carry(lambda: self._server.take(statement, self._reply))

    def _reply(self, answer: Any) -> None:
        if not self._process.is_dead:
            self._process.call_soon(self.hear, answer)


class LocalClient(WatermarkTracker):
    """A subtask's face of a tracker that all processes share; the dead say nothing."""

    def __init__(self, shared: InProcessTracker, process: Process) -> None:
        self._shared = shared
        self._process = process

    async def open(self, subtask: int, parallelism: int) -> None:
        await self._shared.open(subtask, parallelism)

    def report(self, report: Any) -> int | None:
        return self._shared.current() if self._process.is_dead else self._shared.report(report)

    def current(self) -> int | None:
        return self._shared.current()

    def start_at(self, watermark: int | None) -> None:
        self._shared.start_at(watermark)

    def on_advance(self, heard: Callable[[], None]) -> None:
        self._shared.on_advance(lambda: None if self._process.is_dead else heard())

    def announce_finished(self, shards: Any) -> None:
        if not self._process.is_dead:
            self._shared.announce_finished(shards)

    def is_finished(self, shard: str) -> bool:
        return self._shared.is_finished(shard)

    def final_watermark(self, shard: str) -> int | None:
        return self._shared.final_watermark(shard)

    def max_shard_watermark(self) -> int | None:
        return self._shared.max_shard_watermark()

    def missing_subtasks(self) -> list[int]:
        return self._shared.missing_subtasks()

    def timed_out_subtasks(self) -> tuple[int, ...]:
        return self._shared.timed_out_subtasks()

    def lowest_subtask(self) -> int | None:
        return self._shared.lowest_subtask()
