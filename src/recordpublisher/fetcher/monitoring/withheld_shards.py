"""WithheldShards: alarms for workers that send heartbeats and do not give up what others should read (E5)."""

from __future__ import annotations

from collections.abc import Collection

from ..alarms import Alarm, AlarmKind
from ..leases.lease_counts import LeaseCounts
from .stall_detector import UnchangedTimer


class WithheldShards:
    """Owns for how long each worker has withheld the same shards. One that gives some of them up makes progress."""

    def __init__(self, leases: LeaseCounts, interval_ms: int, max_gap: float) -> None:
        self._leases = leases
        self._interval_ms = interval_ms
        self._max_gap = max_gap
        self._timers: dict[str, UnchangedTimer] = {}

    def alarms(self, now: float) -> list[Alarm]:
        """An alarm for each worker that has withheld its shards for the alarm interval; `now` in monotonic seconds."""
        withheld = self._leases.withheld
        self._timers = {worker: self._timers.get(worker) or UnchangedTimer(self._max_gap) for worker in withheld}
        lasting = {
            worker: round(self._timers[worker].observe(tuple(shards), now) * 1000)
            for worker, shards in withheld.items()
        }
        return [
            Alarm(AlarmKind.WITHHELD, f"worker {worker}", lasting_ms, _reason(worker, withheld[worker]))
            for worker, lasting_ms in lasting.items()
            if lasting_ms >= self._interval_ms
        ]


def _reason(worker: str, shards: Collection[str]) -> str:
    example = next(iter(shards))
    return (
        f"{len(shards)} of its shards wait for its last checkpoint, among them {example}; "
        f"`recordpublisher group drain JOB {worker} --force` takes them away"
    )
