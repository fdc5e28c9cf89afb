"""The network between subtasks and tracker: messages are lost, delayed, doubled and reordered; the tracker is suspended and restarted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest
from recordpublisher.fetcher.coordination.remote_tracker import RemoteTracker
from recordpublisher.fetcher.watermarks.watermark_tracker import OwnWatermark, WatermarkTracker
from recordpublisher.publishers.properties.properties import Properties

from .simulator import Clock, Process, Simulator

MAINTENANCE_SECONDS = 0.5
BATCH_SECONDS = 0.01
CLOSE_SECONDS = 0.05


class Network:
    """Delivers messages after a random delay; `loss` and `max_delay` are set by the schedule."""

    def __init__(self, simulator: Simulator, seed: int) -> None:
        self._simulator = simulator
        self._random = random.Random(seed)
        self.loss, self.max_delay = 0.0, 0.02

    def draw_skew_ms(self) -> int:
        """How far the wall clock of a new process is ahead of the others."""
        return self._random.choice([0, 0, -8_000, 8_000, 60_000])

    def carry(self, deliver: Callable[[], None]) -> None:
        draw = self._random
        if draw.random() < self.loss:
            return
        for _ in range(2 if draw.random() < self.loss / 4 else 1):
            self._simulator.after(draw.uniform(0.001, self.max_delay), deliver)


class SkewedClock(Clock):
    """The clocks of a machine whose wall clock is ahead or behind."""

    def __init__(self, simulator: Simulator, skew_ms: int) -> None:
        super().__init__(simulator)
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms


class TrackerServer:
    """The machine that the coordinator runs on."""

    def __init__(self, simulator: Simulator, network: Network) -> None:
        self._simulator = simulator
        self._network = network
        self._identities = itertools.count(1)
        self._coordinator = Coordinator(next(self._identities))
        self._replies: dict[int, Callable[[Any], None]] = {}
        self._last_requests: dict[int, int] = {}
        self._suspended_until = self._down_until = 0.0
        self._is_due = False
        simulator.after(MAINTENANCE_SECONDS, self._maintain)

    @property
    def coordinator(self) -> Coordinator:
        return self._coordinator

    @property
    def is_disturbed(self) -> bool:
        """Whether it is suspended or down now."""
        return self._simulator.now < max(self._suspended_until, self._down_until)

    def suspend(self, seconds: float) -> None:
        self._suspended_until = max(self._suspended_until, self._simulator.now + seconds)

    def restart(self, seconds: float) -> None:
        """Its state is lost, and requests are lost until it is up again."""
        self._coordinator = Coordinator(next(self._identities))
        self._down_until = self._simulator.now + min(seconds, 15.0)

    def disconnect(self, subtask: int) -> None:
        """The connection of a killed process is closed by its machine."""
        number = self._last_requests.get(subtask)
        if number is not None:
            self._simulator.after(CLOSE_SECONDS, lambda: self._coordinator.disconnect(subtask, number))

    def handle(self, request: HeartbeatRequest, reply: Callable[[Any], None]) -> None:
        now = self._simulator.now
        if now < self._down_until:
            return
        if now < self._suspended_until:  # the request waits in the socket's buffer
            self._simulator.at(self._suspended_until, lambda: self.handle(request, reply))
            return
        self._replies[request.subtask] = reply
        self._last_requests[request.subtask] = max(request.request_number, self._last_requests.get(request.subtask, 0))
        response = self._coordinator.handle_heartbeat(request, now * 1000)
        self._network.carry(lambda: reply(response))
        if not self._is_due:
            self._is_due = True
            self._simulator.after(BATCH_SECONDS, self._notify)

    def _notify(self) -> None:
        self._is_due = False
        if self.is_disturbed:
            return
        for subtask, response in self._coordinator.take_notifications():
            if subtask in self._replies:
                self._send(self._replies[subtask], response)

    def _send(self, reply: Callable[[Any], None], response: Any) -> None:
        self._network.carry(lambda: reply(response))

    def _maintain(self) -> None:
        if not self.is_disturbed:
            self._coordinator.expire(self._simulator.now * 1000)
            self._notify()
        self._simulator.after(MAINTENANCE_SECONDS, self._maintain)


class TrackerClient(RemoteTracker):
    """A subtask's tracker, over the network."""

    def __init__(
        self, properties: Properties, simulator: Simulator, process: Process, network: Network, server: TrackerServer
    ) -> None:
        super().__init__(properties, SkewedClock(simulator, network.draw_skew_ms()))
        self._process = process
        self._network = network
        self._server = server
        self.responded_at = 0.0
        """When the last response arrived (virtual seconds)."""

    def send(self, request: HeartbeatRequest) -> None:
        if not self._process.is_dead:
            self._network.carry(lambda: self._server.handle(request, self._reply))

    def _reply(self, response: Any) -> None:
        if not self._process.is_dead:
            self._process.call_soon(self.handle_response, response)

    def handle_response(self, response: Any) -> None:
        self.responded_at = self._clock.monotonic()
        super().handle_response(response)


class OwnWatermarkClient(WatermarkTracker):
    """One subtask's view of a tracker that all processes share; a dead process reports nothing."""

    def __init__(self, shared: OwnWatermark, process: Process) -> None:
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

    def on_advance(self, callback: Callable[[], None]) -> None:
        self._shared.on_advance(lambda: None if self._process.is_dead else callback())

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
