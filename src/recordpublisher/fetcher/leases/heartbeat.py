"""Writes this worker's record, one write at a time. The first heartbeat joins the group, and must not come too late (E12).

`WritePermission` decides whether this worker may write to the sink now (E4), and `SilenceObserver` measures the heartbeats of others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from .group_store import GroupStore
from .worker_record import WorkerRecord


class Heartbeat:
    """Shows other workers that this one is running: writes its record again and again, each time with the next number (`beat`).

    `describe` returns the current record with the given number.
    """

    def __init__(
        self, group: GroupStore, worker: str, describe: Callable[[int], WorkerRecord], permission: WritePermission
    ) -> None:
        self._worker = worker
        self._document = group.own_record(worker)
        self._describe = describe
        self._permission = permission
        self._beat = 0
        self._sealed: WorkerRecord | None = None
        self._is_sealed = False
        self._lock = asyncio.Lock()

    async def write(self) -> WorkerRecord:
        """Write a heartbeat, and return the written record.

        Raises: FencedError if the worker was sealed (declared dead) or has left; StoreUnavailableError if the store does not answer.
        """
        async with self._lock:
            if self._sealed is not None:
                raise FencedError(f"worker {self._worker} has left its group, so it may no longer write")
            record = self._next()
            sent = self._permission.send_time()
            await self._document.write(record)
            self._permission.confirm(sent)
            return record

    async def seal(self) -> None:
        """End this worker: seal its record, so that no later write of the worker takes effect. After an error the call may be repeated.

        Raises: FencedError if another process has sealed this worker; StoreUnavailableError if the store does not answer.
        """
        async with self._lock:
            if self._sealed is None:
                self._sealed = msgspec.structs.replace(self._next(), is_sealed=True)
            if not self._is_sealed:
                await self._document.write(self._sealed)
                self._is_sealed = True

    def _next(self) -> WorkerRecord:
        self._beat += 1
        return self._describe(self._beat)


@dataclass(slots=True)
class _Heartbeat:
    beat: int
    counted_until: float
    stood: float = 0.0
    has_moved: bool = False

    def count_until(self, now: float, *, is_gap: bool) -> None:
        """Add the time since the last call to the time without a new heartbeat. If `is_gap`, leave that time out."""
        if not is_gap and now > self.counted_until:
            self.stood += now - self.counted_until
        if is_gap or now > self.counted_until:
            self.counted_until = now


class SilenceObserver:
    """Measures how long each worker's heartbeat has been unchanged. It uses neither a wall clock nor the clock of another machine.

    Only time between two answered reads counts, and only if they are at most `max_gap` seconds apart. A longer gap is left out: this
    process was suspended, or the store did not answer.
    """

    def __init__(self, max_gap: float) -> None:
        self._max_gap = max_gap
        self._answered: float | None = None
        self._heartbeats: dict[str, _Heartbeat] = {}

    def observe(self, beats: Mapping[str, int], sent: float, answered: float) -> None:
        """Register the heartbeat number of each worker, as one read returned it, and the times at which that read was sent and answered."""
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
        """The workers whose heartbeat number has not changed since it was first read."""
        return {worker for worker, heartbeat in self._heartbeats.items() if not heartbeat.has_moved}

    def silent_for(self, leases: Mapping[str, float]) -> set[str]:
        """Return the workers whose heartbeat has not changed for at least the duration in `leases` (seconds)."""
        return {worker for worker, heartbeat in self._heartbeats.items() if heartbeat.stood >= leases[worker]}


# WritePermission decides whether this worker may write to the sink now: only while other workers cannot have replaced it (E4).


class SentAt(NamedTuple):
    """When a heartbeat was sent, and the number of suspensions before that."""

    suspensions: int
    seconds: float


class WritePermission:
    """Decides whether the process may write to the sink: for some time after it has sent a heartbeat that was confirmed.

    Other workers seal a worker if its heartbeat does not change for the lease duration. The permission counts from the sending of a
    heartbeat, because the answer may arrive long after the heartbeat took effect. The clock runs while the machine sleeps. No clock runs
    while a virtual machine is paused, so after a suspension that was noticed a new heartbeat is needed.

    Pauses of a virtual machine below 2 s (`SuspensionDetector`) are not noticed. They are harmless if together they are shorter than the
    third of the lease duration between the end of the permission and the seal: 6.7 s by default.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._suspensions = 0
        self._confirmed: SentAt | None = None

    def send_time(self) -> SentAt:
        """Return the time now, and the number of suspensions so far, for a heartbeat that is about to be sent."""
        return SentAt(self._suspensions, self._clock.boottime())

    def confirm(self, sent: SentAt) -> None:
        """Extend the permission, because the heartbeat that was sent at `sent` is stored."""
        if self._confirmed is None or sent > self._confirmed:
            self._confirmed = sent

    def on_suspension(self) -> None:
        """Withdraw the permission until the next heartbeat, because this process was suspended."""
        self._suspensions += 1

    @property
    def is_given(self) -> bool:
        """Whether the process may write to the sink."""
        confirmed = self._confirmed
        if confirmed is None or confirmed.suspensions != self._suspensions:
            return False
        return self._clock.boottime() - confirmed.seconds < self._seconds


class LateJoinError(FencedError):
    """The first heartbeat of a worker came too late, so its process must join as a worker with another name. No shard was read yet."""


async def join_group(
    write_first: Callable[[], Awaitable[None]], heartbeat: Heartbeat, clock: Clock, duration: float
) -> None:
    """Write the first heartbeat, which makes this worker a member of the group.

    The join fails if it takes longer than a lease duration. An attempt that got no answer may have stored a record. Other workers then see
    a heartbeat that does not change, seal the worker, and might delete the record that a later attempt stores. Two clocks measure the time,
    because one of them may stop while the process is suspended.

    - `write_first`: writes the first heartbeat, and repeats the write until it is confirmed.
    - `duration`: length of a lease in seconds.

    Raises: LateJoinError if the first heartbeat was confirmed too late, or if other workers have already sealed the worker.
    """
    began, began_ms = clock.boottime(), clock.now_ms()
    try:
        await write_first()
    except FencedError as error:
        raise LateJoinError(
            f"other workers sealed it (declared it dead) before its first heartbeat was confirmed: {error}"
        ) from error
    seconds = max(clock.boottime() - began, (clock.now_ms() - began_ms) / 1000)
    if seconds >= duration:
        with contextlib.suppress(FencedError, StoreUnavailableError):
            await heartbeat.seal()
        raise LateJoinError(
            f"its first heartbeat was confirmed after {seconds:.0f} s, and other workers may have removed it from the group in the meantime"
        )
