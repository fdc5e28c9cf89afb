"""A worker whose first record may have been deleted before it was confirmed begins anew (E12)."""

import asyncio

import pytest

from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.heartbeat import Heartbeat as RealHeartbeat
from recordpublisher.fetcher.leases.heartbeat import LateJoinError, WritePermission, join_group
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError
from recordpublisher.testing import run_virtual
from recordpublisher.testing.virtual_time import VirtualClock

from fakes.memory_store import MemoryStore

LEASE = 20.0


class LosingStore(MemoryStore):
    """Its writes take effect, also those that it does not answer."""

    loses_answers = False

    def _write(self, name, value, expected):
        version = super()._write(name, value, expected)
        if self.loses_answers:
            raise StoreUnavailableError("no answer")
        return version


class Heartbeat:
    def __init__(self, error=None):
        self.seals, self._error = 0, error

    async def seal(self):
        self.seals += 1
        if self._error is not None:
            raise self._error


class JumpingClock(VirtualClock):
    """A paused virtual machine: its wall clock is set afterwards."""

    jumped_ms = 0

    def now_ms(self):
        return super().now_ms() + self.jumped_ms


def join(seconds, heartbeat, clock=None, jump_ms=0):
    clock = clock or VirtualClock()

    async def write_first():
        await asyncio.sleep(seconds)
        if jump_ms:
            clock.jumped_ms = jump_ms

    run_virtual(join_group(write_first, heartbeat, clock, LEASE))
    return heartbeat.seals


def test_a_first_record_that_is_confirmed_within_a_lease_counts():
    assert join(LEASE - 1, Heartbeat()) == 0


@pytest.mark.parametrize("error", [None, FencedError("sealed"), StoreUnavailableError("away")])
def test_one_that_is_confirmed_later_is_given_up_and_sealed_if_that_can_be(error):
    heartbeat = Heartbeat(error)
    with pytest.raises(LateJoinError, match=r"confirmed after 20 s"):
        join(LEASE, heartbeat)

    assert heartbeat.seals == 1


def test_a_worker_that_was_sealed_before_it_joined_begins_anew_too():
    async def sealed():
        raise FencedError("sealed")

    with pytest.raises(LateJoinError, match=r"sealed it \(declared it dead\) before its first heartbeat was confirmed"):
        run_virtual(join_group(sealed, Heartbeat(), VirtualClock(), LEASE))


def test_time_in_which_only_the_wall_clock_went_on_counts():
    with pytest.raises(LateJoinError, match=r"confirmed after 61 s"):
        join(1, Heartbeat(), JumpingClock(), jump_ms=60_000)


async def test_a_sealed_record_does_not_change():
    """A second seal, as of a process that is cut off after its worker has left, would state that it has no shards (E3)."""
    store = LosingStore()
    group, counts = GroupStore(store), iter(range(100, 200))
    permission = WritePermission(VirtualClock(), LEASE)
    describe = lambda beat: WorkerRecord("me", beat, watermark=next(counts))  # noqa: E731
    heartbeat = RealHeartbeat(group, "me", describe, permission)
    await heartbeat.write()
    store.loses_answers = True
    with pytest.raises(StoreUnavailableError):
        await heartbeat.seal()
    store.loses_answers = False
    sealed = (await group.read_records())["me"].document
    await heartbeat.seal()
    await heartbeat.seal()
    assert (await group.read_records())["me"].document == sealed
    assert sealed.is_sealed
