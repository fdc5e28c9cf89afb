"""Judge: the sink of a soak run. Every record once, in the order of its key, as it was written (S1, S2)."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch


class Ledger:
    """What was produced, key by key, and how far it arrived."""

    def __init__(self) -> None:
        self.produced: defaultdict[str, list[bytes]] = defaultdict(list)
        self.arrived: defaultdict[str, int] = defaultdict(int)

    @property
    def is_complete(self) -> bool:
        return all(self.arrived[key] == len(rows) for key, rows in self.produced.items())

    def missing(self) -> dict[str, str]:
        return {
            key: f"{self.arrived[key]} of {len(rows)}"
            for key, rows in self.produced.items()
            if self.arrived[key] != len(rows)
        }

    def take(self, key: str, data: bytes, where: str) -> None:
        rows, number = self.produced[key], self.arrived[key]
        if number < len(rows) and data == rows[number]:
            self.arrived[key] += 1
            return
        if data in rows:
            found = rows.index(data)
            kind = "a duplicate or out of order" if found < number else "a gap or out of order"
            raise AssertionError(f"{where}: key {key} wants {number}, came {found}: {kind}")
        raise AssertionError(f"{where}: key {key} wants {number}, came what nobody wrote: {data[:40]!r}")


class Stalls:
    """When the sinks of a run stop taking records; each time is met once, by whichever sink comes first."""

    def __init__(self, clock: Clock, times: tuple[tuple[float, float], ...]) -> None:
        self._clock = clock
        self._begin = clock.monotonic()
        self._times = list(times)
        self.is_on = False

    async def meet(self) -> None:
        """Stall if it is time to."""
        while self._times and self._begin + self._times[0][0] <= self._clock.monotonic():
            self.is_on = True
            await asyncio.sleep(self._times.pop(0)[1])
            self.is_on = False


class JudgingSink(Sink):
    """Hands every record to the ledger; takes none while it stalls."""

    def __init__(self, ledger: Ledger, stalls: Stalls) -> None:
        self._ledger = ledger
        self._stalls = stalls
        self.is_busy = False

    async def write(self, batch: RecordBatch) -> None:
        assert not self.is_busy, "calls of the sink overlap"
        self.is_busy = True
        await self._stalls.meet()
        for record in batch:
            self._ledger.take(record.partition_key or "", record.data, batch.shard.key)
        self.is_busy = False
