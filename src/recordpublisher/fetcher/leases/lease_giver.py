"""Releases shards: stops reading them, takes one checkpoint for all of them, and marks them as released (E5)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from recordpublisher.publishers.clock import wait_at_most

from .heartbeat import Heartbeat
from .lease_settings import HANDOVER_SECONDS
from .owned_leases import OwnedLeases
from .shard_readers import ShardReaders

log = logging.getLogger("recordpublisher.group")
MAX_PAUSE_SECONDS = 5.0
"""The longest pause between two checkpoints while the sink has unfinished records of a shard (seconds).

The pause grows up to this. So a transfer takes at most twice as long as the sink, and a slow transfer costs few writes.
"""
WARN_SECONDS = 60.0


class LeaseGiver:
    """Owns which shards are to be released, and whether the worker is leaving.

    `take_checkpoint` stores how far each shard was emitted, or finished by the sink. A shard is released when both positions are the same.
    A stopped shard is not read again under the same lease.
    """

    def __init__(
        self,
        owned: OwnedLeases,
        readers: ShardReaders,
        heartbeat: Heartbeat,
        take_checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._owned = owned
        self._readers = readers
        self._heartbeat = heartbeat
        self._take_checkpoint = take_checkpoint
        self._requested: set[str] = set()
        self._has_work = asyncio.Event()
        self.is_leaving = False
        """Whether the worker releases all shards and takes none."""

    @property
    def is_busy(self) -> bool:
        """Whether any shards wait to be released."""
        return bool(self._requested)

    def request(self, shards: Collection[str]) -> None:
        """Release these shards soon."""
        if shards:
            self._requested |= set(shards)
            self._has_work.set()

    def announce(self) -> None:
        """Take no more shards, because all shards will be released."""
        self.is_leaving = True

    def leave(self) -> None:
        """Release all shards, and then let `run` return."""
        self.is_leaving = True
        self._has_work.set()

    async def run(self, retry: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        """Release requested shards until the worker has left. `retry` repeats a round until the store answers."""
        pause, waited = HANDOVER_SECONDS, 0.0
        while True:
            await self._wait_for_work(pause if self._requested else None)
            is_last = (
                self.is_leaving
            )  # read first: a round that began before the worker was leaving does not cover all shards
            await retry(self.give_once)
            if not self._requested:
                pause, waited = HANDOVER_SECONDS, 0.0
                if is_last:
                    return
                continue
            waited += pause
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
            if waited >= WARN_SECONDS:
                waited = 0.0
                log.warning(
                    "%s wait to be transferred, because the sink has not finished their records",
                    sorted(self._requested),
                )

    async def give_once(self) -> None:
        """Release the requested shards, or all shards if the worker is leaving.

        Raises: FencedError if the worker was sealed; StateError if the positions cannot be stored.
        """
        if self.is_leaving:
            await self._heartbeat.write()  # no plan counts this worker from now on
            self._requested |= set(self._owned.shards)
        requested = set(self._requested)
        leases = self._owned.leases_of(requested)
        await self._readers.stop(leases.keys())
        self._owned.stop(leases)
        await self._take_checkpoint()
        await self._heartbeat.write()
        self._requested -= requested - self._owned.unfinished

    async def _wait_for_work(self, seconds: float | None) -> None:
        await wait_at_most(self._has_work, seconds)
        self._has_work.clear()
