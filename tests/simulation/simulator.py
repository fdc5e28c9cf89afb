"""Simulator: processes with an asyncio loop each, on one virtual time; deterministic, without threads and sockets."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any

MIN_NOTICED_SECONDS = 3.0
"""A process must notice a suspension of at least this length."""
EPOCH_MS = 1_700_000_000_000


class Simulator:
    """Owns the virtual time, the events outside of processes (servers, networks, faults), and which process runs next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.processes: list[Process] = []
        self.has_failed = False
        """Whether what a process runs has raised an error."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action at a time (virtual seconds)."""
        heapq.heappush(self._events, (max(when, self.now), next(self._order), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action after a delay."""
        self.at(self.now + seconds, action)

    def process(self) -> Process:
        """A new process."""
        made = Process(self)
        self.processes.append(made)
        return made

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run until a time, or until `is_over`."""
        while not is_over():
            next_event = self._events[0][0] if self._events else math.inf
            process, due = None, next_event
            for each in self.processes:
                when = each.due()
                if when < due:
                    process, due = each, when
            if due > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, due)
            if process is None:
                heapq.heappop(self._events)[2]()
                continue
            process.step()
            while process.is_ready and not (self._events and self._events[0][0] <= self.now) and not is_over():
                process.step()

    def close(self) -> None:
        """Kill every process and drop the events."""
        for process in tuple(self.processes):
            process.kill()
        self._events.clear()


class Clock:
    """The Clock port on the simulator's time."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def now_ms(self) -> int:
        return EPOCH_MS + round(self._simulator.now * 1000)

    def monotonic(self) -> float:
        return self._simulator.now

    def boottime(self) -> float:
        return self.monotonic()


class _EmptySelector:
    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class Process(asyncio.base_events.BaseEventLoop):
    """The event loop of one process. It can be suspended (SIGSTOP), throttled (it pauses after each step), or killed."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__()
        self._simulator = simulator
        self._selector = _EmptySelector()
        self._runnable_at = 0.0
        self.pause = 0.0
        self.resumed_at = 0.0
        """When it last resumed after a suspension that it must notice."""
        self.suspended_seconds = 0.0
        """For how long it was suspended in total."""
        self.suspensions = 0
        self.is_dead = False
        self.failures: list[BaseException] = []
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._simulator.now

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def due(self) -> float:
        """When the process has something to do next; infinite: never."""
        if self._ready:
            when = self._simulator.now
        else:
            scheduled = self._scheduled
            while scheduled and scheduled[0]._cancelled:
                self._timer_cancelled_count -= 1
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                return math.inf
            when = scheduled[0]._when
        return when if when > self._runnable_at else self._runnable_at  # asked of each process before each step

    @property
    def is_ready(self) -> bool:
        """Whether it can go on at once."""
        return bool(self._ready) and self._runnable_at <= self._simulator.now

    def step(self) -> None:
        """Run one step of the loop: as BaseEventLoop._run_once, without a selector and without debug mode, which cost most of its time."""
        ready, scheduled, now = self._ready, self._scheduled, self._simulator.now
        while scheduled and scheduled[0]._when <= now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)
        if self.pause:
            self._runnable_at = now + self.pause

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the process; what it raises is kept in `failures`."""
        task = self.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
            self._simulator.has_failed = True

    def suspend(self, seconds: float) -> None:
        """Simulate SIGSTOP, and SIGCONT later."""
        begins = max(self._runnable_at, self._simulator.now)
        self._runnable_at = max(self._runnable_at, self._simulator.now + seconds)
        self.suspensions += 1
        self.suspended_seconds += max(0.0, self._runnable_at - begins)
        if seconds >= MIN_NOTICED_SECONDS:
            self.resumed_at = self._runnable_at

    @property
    def is_disturbed(self) -> bool:
        """Whether it is suspended or throttled now."""
        return self.pause > 0 or self._runnable_at > self._simulator.now

    def starve(self, seconds: float, pause: float) -> None:
        """Simulate a CPU quota: after each step the process waits."""
        self.pause = pause

        def end() -> None:
            self.pause = 0.0

        self._simulator.after(seconds, end)

    def kill(self) -> None:
        """Simulate kill -9: the process has no effect any more. Its coroutines are cancelled here, so that none is left behind."""
        if self.is_dead:
            return
        self.is_dead = True
        for _ in range(1_000):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.step()
        self._simulator.processes.remove(self)
        self.close()
