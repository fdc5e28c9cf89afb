"""ConsumerRegistrar registers the consumer of each stream that a job reads. The last factory of a process deregisters it (F4, F8)."""

import asyncio
import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConsumerError, ImpossibleStateError, RecordPublisherError
from recordpublisher.publishers.kinesis.ports import RegistrationPort

from ..config import FanOutConfig, RegistrationType
from .registration_calls import RegistrationCalls


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """One consumer of one stream at one endpoint."""

    endpoint: str
    stream_arn: str
    name: str


@dataclass(slots=True)
class _RefCount:
    count: int = 0
    keeps_registered: bool = False


class ConsumerRefCounts:
    """Owns the reference count of each consumer, across the event loops and threads of one process.

    Other processes are not counted. If a process deregisters a consumer that another process still reads, the other
    process registers it again (F4).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ConsumerKey, _RefCount] = {}

    def acquire(self, key: ConsumerKey) -> None:
        """Count one more user of the consumer."""
        with self._lock:
            self._counts.setdefault(key, _RefCount()).count += 1

    def release(self, key: ConsumerKey, *, keeps_registered: bool) -> bool:
        """Count one user less. Return whether it was the last one, and no user keeps the consumer registered."""
        with self._lock:
            counted = self._counts[key]
            counted.count -= 1
            counted.keeps_registered |= keeps_registered
            if counted.count > 0:
                return False
            del self._counts[key]
            return not counted.keeps_registered


PROCESS_REF_COUNTS = ConsumerRefCounts()


log = logging.getLogger(__name__)


class ConsumerRegistrar:
    """Owns the consumer ARN of every stream of one factory, and the factory's references to the consumers.

    All shards of a stream see a new ARN as soon as one of them has registered the consumer again.
    """

    def __init__(
        self,
        port: RegistrationPort,
        config: FanOutConfig,
        clock: Clock,
        endpoint: str = "",
        ref_counts: ConsumerRefCounts = PROCESS_REF_COUNTS,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._registration = RegistrationCalls(port, config, clock, draw)
        self._config = config
        self._endpoint = endpoint
        self._ref_counts = ref_counts
        self._draw = draw
        self._arns: dict[str, str] = {}
        self._keys: dict[str, ConsumerKey] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._keeps_registered = False
        self.is_stopping = False

    def arn(self, stream: str) -> str:
        """Return the ARN of the consumer to subscribe with. `ensure` must have been called for the stream."""
        return self._arns[stream]

    def keep_registered(self) -> None:
        """Deregister no consumer at the end, because the job continues in other processes, or when it is started again after an error."""
        self._keeps_registered = True

    async def ensure(self, stream: str, stream_arn: str | None = None) -> None:
        """Make sure that the stream has an ACTIVE consumer. If several shards call this, one does the work and the others wait.

        Raises: StreamNotFoundError if the stream does not exist, ConsumerError if the consumer cannot be registered.
        """
        async with self._locks[stream]:
            if stream in self._arns:
                return
            self._config.check_streams([stream])
            given = self._config.configured_arn(stream)
            if given is not None:
                self._acquire(stream, given.stream_arn, given.name)
                self._arns[stream] = given.text
            else:
                await self._delay_start()
                self._acquire(stream, stream_arn or await self._registration.stream_arn(stream), self._consumer_name())
                self._arns[stream] = await self._ensure_active(stream)

    async def reregister_if_gone(self, stream: str, lost_arn: str) -> bool:
        """Check a consumer that the service did not find, and register it again. Return False if it still exists (F4).

        Raises: ConsumerError if the consumer is gone and the registration is NONE.
        """
        async with self._locks[stream]:
            if self._arns[stream] != lost_arn:
                return True
            if await self._is_active(stream):
                return False
            if not self._config.registers:
                raise ConsumerError(_vanished(stream, lost_arn))
            log.warning("consumer %s is gone: registering it again", lost_arn)
            self._arns[stream] = await self._ensure_active(stream)
            return True

    async def close(self) -> None:
        """Release the consumers. The last user deregisters each consumer that no user keeps.

        If a deregistration fails, this is logged, not raised.
        """
        if self.is_stopping:
            return
        self.is_stopping = True
        for key in self._keys.values():
            await self._release(key)

    async def release(self, stream: str) -> None:
        """Release the consumer of one stream, as `close` does. `ensure` registers it again."""
        async with self._locks[stream]:
            self._arns.pop(stream, None)
            key = self._keys.pop(stream, None)
            if key is not None and not self.is_stopping:
                await self._release(key)

    async def _release(self, key: ConsumerKey) -> None:
        if self._ref_counts.release(key, keeps_registered=self._keeps_registered) and self._config.deregisters:
            await self._deregister(key)

    async def _ensure_active(self, stream: str) -> str:
        key = self._keys[stream]
        return await self._registration.ensure_active(key.stream_arn, key.name, lambda: not self.is_stopping)

    def _consumer_name(self) -> str:
        if self._config.consumer_name is None:
            raise ImpossibleStateError("a job that registers its consumer has no consumer name")
        return self._config.consumer_name

    async def _is_active(self, stream: str) -> bool:
        key = self._keys[stream]
        described = await self._registration.describe(key.stream_arn, key.name)
        return described is not None and described.arn == self._arns[stream] and described.status == "ACTIVE"

    async def _delay_start(self) -> None:
        """Wait a little at random, so that many subtasks stay below 5 registrations a second (LAZY only, as in Flink's connector)."""
        if self._config.registration is RegistrationType.LAZY:
            await asyncio.sleep(self._draw() * self._config.retries.register.base_ms / 1000)

    async def _deregister(self, key: ConsumerKey) -> None:
        try:
            async with asyncio.timeout(self._config.deregister_timeout):
                await self._registration.deregister(key.stream_arn, key.name)
        except (RecordPublisherError, TimeoutError) as error:
            reason = str(error) or "Timeout waiting for stream consumer to deregister"
            log.warning("consumer '%s' on %s stays registered and is billed: %s", key.name, key.stream_arn, reason)

    def _acquire(self, stream: str, stream_arn: str, name: str) -> None:
        if stream not in self._keys:
            self._keys[stream] = ConsumerKey(self._endpoint, stream_arn, name)
            self._ref_counts.acquire(self._keys[stream])


def _vanished(stream: str, arn: str) -> str:
    return (
        f"the consumer of stream '{stream}' is not registered (or no longer): {arn}; registration is NONE, so register it by command and "
        f"set flink.stream.efo.consumerarn.{stream}, or let LAZY or EAGER do it"
    )
