"""Measures for how long each worker's heartbeat has not changed, as seen by this process (E3)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Heartbeat:
    beat: int
    counted_until: float
    stood: float = 0.0
    has_moved: bool = False

    def count_until(self, now: float, *, is_gap: bool) -> None:
        """Count the time in which the heartbeat has not changed. After a gap, the time before it does not count."""
        if not is_gap and now > self.counted_until:
            self.stood += now - self.counted_until
        if is_gap or now > self.counted_until:
            self.counted_until = now


class SilenceObserver:
    """Owns how long each heartbeat was observed unchanged. It uses neither a wall clock nor the clock of another machine.

    Only time between two answered reads counts, and only if they are at most `max_gap` seconds apart. During a longer gap this process was
    suspended or the store did not answer. A gap counts as no time, and resets nothing.
    """

    def __init__(self, max_gap: float) -> None:
        self._max_gap = max_gap
        self._answered: float | None = None
        self._heartbeats: dict[str, _Heartbeat] = {}

    def observe(self, beats: Mapping[str, int], sent: float, answered: float) -> None:
        """Register the heartbeat numbers of every worker, as one read returned them, and when that read was sent and answered."""
        is_gap = self._answered is None or sent - self._answered > self._max_gap
        self._answered = answered
        known = self._heartbeats
        self._heartbeats = {
            worker: known[worker]
            if worker in known and known[worker].beat == beat
            else _Heartbeat(beat, answered, has_moved=worker in known)
            for worker, beat in beats.items()
        }
        for heartbeat in self._heartbeats.values():
            heartbeat.count_until(answered if is_gap else sent, is_gap=is_gap)

    @property
    def never_moved(self) -> set[str]:
        """The workers whose heartbeat has been the same since it was first read."""
        return {worker for worker, heartbeat in self._heartbeats.items() if not heartbeat.has_moved}

    def silent_for(self, leases: Mapping[str, float]) -> set[str]:
        """Return the workers whose heartbeat has not changed for at least their lease (seconds)."""
        return {worker for worker, heartbeat in self._heartbeats.items() if heartbeat.stood >= leases[worker]}
