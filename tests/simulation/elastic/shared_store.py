"""The group's conditional store, and each process's connection to it: requests and answers are late, lost or applied twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue
from recordpublisher.publishers.errors import FencedError

from ..simulator import Process, Simulator
from .traps import Trap, Traps

MAX_LAG_SECONDS = 3.0


class SharedStore:
    """Owns the values, and what they were. `on_write` sees each one that changes (None: deleted), after it changed."""

    def __init__(self, simulator: Simulator) -> None:
        self.values: dict[str, VersionedValue] = {}
        self._simulator = simulator
        self._history: dict[str, list[tuple[float, VersionedValue | None]]] = {}
        self.on_write: Callable[[str, bytes | None, bytes | None], None] = lambda name, before, after: None
        self._writes = 0

    def put(self, name: str, value: bytes, expected: str | None) -> str:
        current = self.values.get(name)
        if expected != (None if current is None else current.version):
            raise ConflictError("the simulated store", name, current)
        self._writes += 1
        self._set(name, VersionedValue(value, str(self._writes)))
        self.on_write(name, None if current is None else current.value, value)
        return str(self._writes)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            if (current := self.values.get(name)) is not None:
                self._set(name, None)
                self.on_write(name, current.value, None)

    def list(self, prefix: str) -> dict[str, VersionedValue]:
        return {name: self.values[name] for name in sorted(self.values) if name.startswith(prefix)}

    def list_of(self, prefix: str, lag: Callable[[], float]) -> dict[str, VersionedValue]:
        """As replicas have it that lag behind by so many seconds, for each value by its own."""
        found = {name: self._value_at(name, self._simulator.now - lag()) for name in sorted(self._history)}
        return {name: value for name, value in found.items() if value is not None and name.startswith(prefix)}

    def _set(self, name: str, value: VersionedValue | None) -> None:
        entries, now = self._history.setdefault(name, [(0.0, None)]), self._simulator.now
        while len(entries) > 1 and entries[1][0] < now - MAX_LAG_SECONDS:
            del entries[0]
        entries.append((now, value))
        if value is None:
            self.values.pop(name)
        else:
            self.values[name] = value

    def _value_at(self, name: str, when: float) -> VersionedValue | None:
        return next(value for at, value in reversed(self._history[name]) if at <= max(when, 0.0))


@dataclass
class Faults:
    """How often something happens to a call; how long requests and answers take (s), and for how long they may be late.

    `lag`: by how much (s) the replicas may lag behind that answer reads which need not be consistent.
    """

    share: float = 0.0
    suspensions: float = 0.0
    usual: float = 0.1
    late_request: float = 40.0
    late_answer: float = 9.0
    lag: float = 0.0


class StoreClient(ConditionalStore):
    """One process's connection. `is_cut_off` loses everything."""

    place = "the simulated store"

    def __init__(
        self, simulator: Simulator, process: Process, shared: SharedStore, faults: Faults, draw: random.Random
    ) -> None:
        self._simulator = simulator
        self._process = process
        self._shared = shared
        self._faults = faults
        self._random = draw
        self.suspend: Callable[[], None] = lambda: None
        self.traps = Traps((), "")
        self.on_trap: Callable[[Trap], None] = lambda trap: None
        """Suspends, kills or cuts off the process."""
        self.is_cut_off = False

    async def get(self, name: str) -> VersionedValue | None:
        return await self.request(lambda: self._shared.values.get(name))

    async def put_if_absent(self, name: str, value: bytes) -> str:
        return await self.request(lambda: self._shared.put(name, value, None), name)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        return await self.request(lambda: self._shared.put(name, value, expected), name)

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        lag = self._lag
        return await self.request(
            (lambda: self._shared.list(prefix)) if consistent else (lambda: self._shared.list_of(prefix, lag))
        )

    async def list_versions(self, prefix: str) -> Mapping[str, str]:
        return {name: value.version for name, value in (await self.list(prefix)).items()}

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        return list(await self.list(prefix))

    async def delete(self, *names: str) -> None:
        await self.request(lambda: self._shared.delete(names), f"delete {names[0]}" if names else "")

    async def before_write(self, name: str) -> None:
        """The process may be suspended here, too: before the time-out of the call begins."""
        await self._maybe_suspend()
        for trap in self.traps.of(name, self._simulator.now, sent=False).values():
            self.on_trap(trap)
            await asyncio.sleep(0)

    async def request(self, operation: Callable[[], Any], written: str = "") -> Any:
        """Send a request and wait for its answer, for ever if either is lost. The process may be suspended before, meanwhile and after."""
        traps = self.traps.of(written, self._simulator.now, sent=True)
        await self._maybe_suspend()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send(operation, answer, traps)
        for trap in traps.values():
            if trap.what in ("kill", "cut-off"):
                self._simulator.after(0.0, lambda trap=trap: self.on_trap(trap))
        await self._maybe_suspend()
        result = await answer
        await self._maybe_suspend()
        return result

    def _send(self, operation: Callable[[], Any], answer: asyncio.Future[Any], traps: Mapping[str, Trap]) -> None:
        draw, faults = self._random, self._faults
        there, back = self._delay(faults.late_request), self._delay(faults.late_answer)
        there += traps["late request"].seconds if "late request" in traps else 0.0
        back += traps["late answer"].seconds if "late answer" in traps else 0.0
        is_request_lost = self._has_fault() or self.is_cut_off
        is_answer_lost = self._has_fault() or "lost answer" in traps

        def apply() -> None:
            result, error = _outcome(operation)
            if not is_answer_lost:
                self._simulator.after(back, lambda: self._deliver(answer, result, error))

        if not is_request_lost:
            self._simulator.after(there, apply)
            if self._has_fault():
                self._simulator.after(there + draw.uniform(0, 6), lambda: _outcome(operation))

    def _has_fault(self) -> bool:
        return self._random.random() < self._faults.share

    def _delay(self, late: float) -> float:
        return self._random.uniform(0, self._faults.usual) + (
            self._random.uniform(0, late) if self._has_fault() else 0.0
        )

    def _deliver(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if not self._process.is_dead and not answer.done():
            self._process.call_soon(_resolve, answer, result, error)

    def _lag(self) -> float:
        """DynamoDB reads one of three replicas, also for each page anew. All are equal within a second, usually."""
        return self._random.choice([0.0, 1.0, self._random.random()]) * min(self._faults.lag, MAX_LAG_SECONDS)

    async def _maybe_suspend(self) -> None:
        if self._random.random() < self._faults.suspensions:
            self.suspend()
            await asyncio.sleep(0)


def _outcome(operation: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return operation(), None
    except (ConflictError, FencedError) as refusal:
        return None, refusal


def _resolve(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
