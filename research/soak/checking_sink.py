"""CheckingSink: the sink of a soak run. Every record must arrive once, unchanged, in the order of its key (S1, S2).

Under AUTO record distribution keys have no order, so it is not checked where a plan switches to it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch


class DeliveryCheck:
    """The produced records by key, and how many of them have arrived."""

    def __init__(self, keys_have_order: bool = True) -> None:
        self.produced: defaultdict[str, list[bytes]] = defaultdict(list)
        self.arrived: defaultdict[str, int] = defaultdict(int)
        self._keys_have_order = keys_have_order
        self._seen: set[tuple[str, bytes]] = set()

    @property
    def is_complete(self) -> bool:
        return all(self.arrived[key] == len(rows) for key, rows in self.produced.items())

    def missing(self) -> dict[str, str]:
        return {
            key: f"{self.arrived[key]} of {len(rows)}"
            for key, rows in self.produced.items()
            if self.arrived[key] != len(rows)
        }

    def check(self, key: str, data: bytes, where: str) -> None:
        if not self._keys_have_order:
            return self._check_without_order(key, data, where)
        rows, number = self.produced[key], self.arrived[key]
        if number < len(rows) and data == rows[number]:
            self.arrived[key] += 1
            return
        if data in rows:
            found = rows.index(data)
            kind = "a duplicate or out of order" if found < number else "a gap or out of order"
            raise AssertionError(f"{where}: key {key} expected {number}, got {found}: {kind}")
        raise AssertionError(f"{where}: key {key} expected {number}, got an unknown record: {data[:40]!r}")

    def _check_without_order(self, key: str, data: bytes, where: str) -> None:
        assert data in self.produced[key], f"{where}: an unknown record of key {key}: {data[:40]!r}"
        assert (key, data) not in self._seen, f"{where}: a duplicate of key {key}: {data[:40]!r}"
        self._seen.add((key, data))
        self.arrived[key] += 1


class SinkStalls:
    """When the sinks of a run stop accepting records; each stall happens once, in the first sink that writes."""

    def __init__(self, clock: Clock, times: tuple[tuple[float, float], ...]) -> None:
        self._clock = clock
        self._begin = clock.monotonic()
        self._times = list(times)
        self.is_on = False

    async def wait_if_due(self) -> None:
        """Wait if a stall is due."""
        while self._times and self._begin + self._times[0][0] <= self._clock.monotonic():
            self.is_on = True
            await asyncio.sleep(self._times.pop(0)[1])
            self.is_on = False


class CheckingSink(Sink):
    """Checks every record; accepts none during a stall."""

    def __init__(self, delivery: DeliveryCheck, stalls: SinkStalls) -> None:
        self._delivery = delivery
        self._stalls = stalls
        self.is_busy = False

    async def write(self, batch: RecordBatch) -> None:
        assert not self.is_busy, "calls of the sink overlap"
        self.is_busy = True
        await self._stalls.wait_if_due()
        for record in batch:
            self._delivery.check(record.partition_key or "", record.data, batch.shard.key)
        self.is_busy = False
