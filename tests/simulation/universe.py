"""A universe of processes: each has an asyncio loop of its own, all share one virtual time; deterministic, no thread, no socket."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any

NOTICED_SECONDS = 3.0
EPOCH_MS = 1_700_000_000_000


class Universe:
    """Owns the time, what happens outside of processes (servers, networks, fate), and whose turn it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.processes: list[Process] = []
        self._fate: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = itertools.count()

    def at(self, when: float, happens: Callable[[], None]) -> None:
        """Let something happen at a moment (virtual seconds)."""
        heapq.heappush(self._fate, (max(when, self.now), next(self._tickets), happens))

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let something happen later."""
        self.at(self.now + seconds, happens)

    def process(self) -> Process:
        """A new process."""
        made = Process(self)
        self.processes.append(made)
        return made

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time go by until a moment, or until `is_over`."""
        while not is_over():
            fated = self._fate[0][0] if self._fate else math.inf
            process, due = None, fated
            for each in self.processes:
                when = each.due()
                if when < due:
                    process, due = each, when
            if due > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, due)
            if process is None:
                heapq.heappop(self._fate)[2]()
            else:
                process.step()

    def close(self) -> None:
        """End whatever still runs, without a trace."""
        for process in tuple(self.processes):
            process.kill()
        self._fate.clear()


class Clock:
    """The Clock port on the universe's time."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe

    def now_ms(self) -> int:
        return EPOCH_MS + round(self._universe.now * 1000)

    def monotonic(self) -> float:
        return self._universe.now


class _NothingToSelect:
    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class Process(asyncio.base_events.BaseEventLoop):
    """A process's loop. Owns whether it runs: it may be suspended (SIGSTOP), starved (a pause after each turn), or killed."""

    def __init__(self, universe: Universe) -> None:
        super().__init__()
        self._universe = universe
        self._selector = _NothingToSelect()
        self._free_at = 0.0
        self.pause = 0.0
        self.woke_at = 0.0
        """When it last woke from a suspension that it must notice."""
        self.is_dead = False
        self.failures: list[BaseException] = []
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._universe.now

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def due(self) -> float:
        """When the process next has something to do; infinite when nothing."""
        if self._ready:
            return max(self._universe.now, self._free_at)
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        return max(self._scheduled[0]._when, self._free_at) if self._scheduled else math.inf

    def step(self) -> None:
        """One turn of the loop."""
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            events._set_running_loop(None)
        if self.pause:
            self._free_at = self._universe.now + self.pause

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the process; what it raises is kept in `failures`."""
        task = self.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    def suspend(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        self._free_at = max(self._free_at, self._universe.now + seconds)
        if seconds >= NOTICED_SECONDS:
            self.woke_at = self._free_at

    def starve(self, seconds: float, pause: float) -> None:
        """A quota of CPU: after each turn the process waits."""
        self.pause = pause

        def fed() -> None:
            self.pause = 0.0

        self._universe.after(seconds, fed)

    def kill(self) -> None:
        """kill -9: nothing that it does has an effect any more; its coroutines are unwound here so that nothing is left behind."""
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
        self._universe.processes.remove(self)
        self.close()
