"""Registers the consumer of each stream for enhanced fan-out, and deregisters it after its last use (F4, F8).

`ConsumerRegistrar` knows the consumers of one factory. `ConsumerRefCounts` counts their uses in this process. `RegistrationCalls` makes the
calls. In this file, a consumer is always a consumer that is registered with a stream.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from ..clock import Clock
from ..errors import (
    ConsumerError,
    FatalKinesisError,
    ImpossibleStateError,
    RecordPublisherError,
    ResourceInUseError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    ThrottledError,
    TransientError,
)
from ..kinesis.ports import ConsumerDescription, RegistrationPort
from ..properties.fan_out_properties import REGISTRATION
from ..retry import call_with_retries
from .config import FanOutConfig, RegistrationType

log = logging.getLogger(__name__)

_ACCESS_DENIED = ("AccessDeniedException", "AccessDenied")
LIMIT_PAUSE_SECONDS = 1.0
"""How long to wait between two attempts of a registration that was throttled (seconds). The service allows five a second."""


class ConsumerRegistrar:
    """Keeps the ARN of the registered consumer of each stream that one factory reads.

    If one shard registers the consumer again, all shards of the stream see the new ARN at once.
    """

    def __init__(
        self,
        port: RegistrationPort,
        config: FanOutConfig,
        clock: Clock,
        endpoint: str = "",
        ref_counts: ConsumerRefCounts | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._registration = RegistrationCalls(port, config, clock, draw)
        self._config = config
        self._endpoint = endpoint
        self._ref_counts = PROCESS_REF_COUNTS if ref_counts is None else ref_counts
        self._draw = draw
        self._arns: dict[str, str] = {}
        self._keys: dict[str, ConsumerKey] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._keeps_registered = False
        self.is_stopping = False

    def arn(self, stream: str) -> str:
        """Return the ARN of the stream's consumer. Call `ensure` for the stream before."""
        return self._arns[stream]

    def keep_registered(self) -> None:
        """Let `close` leave all consumers registered, because the job continues in other processes, or is started again after an error."""
        self._keeps_registered = True

    async def ensure(self, stream: str, stream_arn: str | None = None) -> None:
        """Find the stream's consumer. If no property sets its ARN, register it if it is missing, and wait until it is ACTIVE.

        If several shards of the stream call this, one call does the work, and the others wait for it.

        Raises: StreamNotFoundError if the stream does not exist; ConsumerError if the consumer cannot be registered.
        """
        async with self._locks[stream]:
            if stream in self._arns:
                return
            # 1. Use the consumer that a property sets.
            self._config.check_streams([stream])
            given = self._config.configured_arn(stream)
            if given is not None:
                self._acquire(stream, given.stream_arn, given.name)
                self._arns[stream] = given.text
            # 2. Without one, register a consumer, or find the one of this name.
            else:
                await self._delay_start()
                self._acquire(stream, stream_arn or await self._registration.stream_arn(stream), self._consumer_name())
                self._arns[stream] = await self._ensure_active(stream)

    async def reregister_if_gone(self, stream: str, lost_arn: str) -> bool:
        """Register a consumer again if it is gone. Return False if it still exists.

        - `lost_arn`: the ARN of the consumer, which the service did not find.

        Raises: ConsumerError if the consumer is gone and the registration is NONE.
        """
        async with self._locks[stream]:
            # The reader of another shard has already registered the consumer again.
            if self._arns[stream] != lost_arn:
                return True
            if await self._is_active(stream):
                return False
            if not self._config.registers:
                raise ConsumerError(_message_of_vanished(stream, lost_arn))
            log.warning("consumer %s is gone: registering it again", lost_arn)
            self._arns[stream] = await self._ensure_active(stream)
            return True

    async def close(self) -> None:
        """End the use of all consumers. Deregister each consumer that no other factory uses, unless one of its users wants to keep it.

        A consumer that stays because of a failed call or a cancellation is logged.
        """
        if self.is_stopping:
            return
        self.is_stopping = True
        await self._release(*self._keys.values())

    async def release(self, stream: str) -> None:
        """End the use of one stream's consumer, and deregister it as `close` does. A later `ensure` registers the consumer again."""
        async with self._locks[stream]:
            self._arns.pop(stream, None)
            key = self._keys.pop(stream, None)
            if key is not None and not self.is_stopping:
                await self._release(key)

    async def _release(self, *keys: ConsumerKey) -> None:
        waiting = list(keys)
        try:
            while waiting:
                if self._is_last_user(waiting[0]):
                    await self._deregister(waiting[0])
                del waiting[0]
        except asyncio.CancelledError:
            # A cancellation ends the first deregistration; the others are not even begun. All consumers are named, because they are billed.
            left = [waiting[0], *filter(self._is_last_user, waiting[1:])]
            log.warning(
                "the job ends before its consumers are deregistered. These may stay registered, and are then billed: %s",
                ", ".join(f"'{key.name}' on {key.stream_arn}" for key in left),
            )
            raise

    def _is_last_user(self, key: ConsumerKey) -> bool:
        is_last = self._ref_counts.release(key, keeps_registered=self._keeps_registered)
        return is_last and self._config.deregisters

    async def _ensure_active(self, stream: str) -> str:
        key = self._keys[stream]
        return await self._registration.ensure_active(key.stream_arn, key.name, lambda: not self.is_stopping)

    def _consumer_name(self) -> str:
        if self._config.consumer_name is None:
            raise ImpossibleStateError(
                "internal error: a job that registers its consumer has no consumer name. Please report it"
            )
        return self._config.consumer_name

    async def _is_active(self, stream: str) -> bool:
        key = self._keys[stream]
        described = await self._registration.describe(key.stream_arn, key.name)
        return described is not None and described.arn == self._arns[stream] and described.status == "ACTIVE"

    async def _delay_start(self) -> None:
        # The service allows 5 registrations a second, and many workers may start at once. Flink's connector waits in the same way.
        if self._config.registration is RegistrationType.LAZY:
            await asyncio.sleep(self._draw() * self._config.retries.register.base_ms / 1000)

    async def _deregister(self, key: ConsumerKey) -> None:
        try:
            async with asyncio.timeout(self._config.deregister_timeout):
                await self._registration.deregister(key.stream_arn, key.name)
        except (RecordPublisherError, TimeoutError) as error:
            reason = str(error) or "Timeout waiting for stream consumer to deregister"
            text = "consumer '%s' on %s stays registered and is billed until `recordpublisher consumers deregister` removes it: %s"
            log.warning(text, key.name, key.stream_arn, reason)

    def _acquire(self, stream: str, stream_arn: str, name: str) -> None:
        if stream not in self._keys:
            self._keys[stream] = ConsumerKey(self._endpoint, stream_arn, name)
            self._ref_counts.acquire(self._keys[stream])


def _message_of_vanished(stream: str, arn: str) -> str:
    return (
        f"the consumer of stream '{stream}' is not registered, or was deregistered: {arn}. With {REGISTRATION.key}=NONE the job does not "
        f"register it: run `recordpublisher consumers register`, and set flink.stream.efo.consumerarn.{stream}, or set LAZY or EAGER"
    )


class ConsumerRefCounts:
    """Counts the uses of each consumer in this process, over all its event loops and threads.

    Uses in other processes are not counted. If a process deregisters a consumer that another process still uses, the other process
    registers it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ConsumerKey, _RefCount] = {}

    def acquire(self, key: ConsumerKey) -> None:
        """Count one more use of the consumer."""
        with self._lock:
            self._counts.setdefault(key, _RefCount()).count += 1

    def release(self, key: ConsumerKey, *, keeps_registered: bool) -> bool:
        """Count one use less. Return True if that was the last use, and no user of the consumer wanted to keep it registered."""
        with self._lock:
            counted = self._counts[key]
            counted.count -= 1
            counted.keeps_registered |= keeps_registered
            if counted.count > 0:
                return False
            del self._counts[key]
            return not counted.keeps_registered


PROCESS_REF_COUNTS = ConsumerRefCounts()
"""The counts of consumers in this process. All factories share them by default."""


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """Identifies a consumer: one name of one stream at one endpoint."""

    endpoint: str
    stream_arn: str
    name: str


@dataclass(slots=True)
class _RefCount:
    count: int = 0
    keeps_registered: bool = False


class RegistrationCalls:
    """Makes the calls that register, find and deregister consumers, with retries. It keeps nothing between two calls."""

    def __init__(
        self, port: RegistrationPort, config: FanOutConfig, clock: Clock, draw: Callable[[], float] = random.random
    ) -> None:
        self._port = port
        self._config = config
        self._retries = config.retries
        self._clock = clock
        self._draw = draw

    async def stream_arn(self, stream: str) -> str:
        """Return the stream's ARN.

        Raises: StreamNotFoundError if the stream does not exist; FatalKinesisError if access is denied. The latter names the missing
        permission.
        """
        try:
            return await call_with_retries(lambda: self._port.stream_arn(stream), self._retries.describe_stream)
        except FatalKinesisError as error:
            if error.code not in _ACCESS_DENIED:
                raise
            message = (
                f"a consumer is registered with the ARN of its stream: allow kinesis:DescribeStreamSummary on '{stream}' for the "
                f"identity in use, or give the stream by its ARN instead of its name ({error})"
            )
            raise FatalKinesisError(error.api, error.code, message) from error

    async def describe(self, stream_arn: str, name: str) -> ConsumerDescription | None:
        """Return the consumer as the service describes it, or None if it does not exist."""
        return await call_with_retries(
            lambda: self._port.describe_consumer(stream_arn, name), self._retries.describe_consumer
        )

    async def ensure_active(self, stream_arn: str, name: str, may_register: Callable[[], bool]) -> str:
        """Register the consumer if it does not exist, wait until it is ACTIVE, and return its ARN.

        If the consumer is being deleted, wait until it is gone, and register it again. If another worker registers it, use that one.

        - `may_register`: returns False while the job is stopping.

        Raises: ConsumerError in these cases:

        - The consumer is not ACTIVE when the time-out is over.
        - The stream has its maximum of consumers.
        - The consumer does not exist, and the job is stopping.
        """
        deadline = self._clock.monotonic() + self._config.register_timeout
        attempt = 0
        while True:
            described = await self.describe(stream_arn, name)
            if described is None:
                described = await self._register(stream_arn, name, may_register)
                # The time-out begins again, so that the deletion of an old consumer of this name does not use it up.
                if described is not None:
                    deadline = self._clock.monotonic() + self._config.register_timeout
            if described is not None and _is_active(described):
                return described.arn
            if self._clock.monotonic() > deadline:
                raise ConsumerError(_still_waiting(described, stream_arn, name, self._config.register_timeout))
            await asyncio.sleep(self._retries.describe_consumer.delay_seconds(attempt, self._draw))
            attempt += 1

    async def deregister(self, stream_arn: str, name: str) -> None:
        """Deregister a consumer. Do nothing if it does not exist or is being deleted."""
        described = await self.describe(stream_arn, name)
        if described is None or described.status == "DELETING":
            return
        try:
            await call_with_retries(lambda: self._port.deregister_consumer(described.arn), self._retries.deregister)
        except (ResourceNotFoundError, ResourceInUseError):  # Another process has deregistered it.
            return
        log.info("deregistered consumer %s", described.arn)

    async def _register(
        self, stream_arn: str, name: str, may_register: Callable[[], bool]
    ) -> ConsumerDescription | None:
        """Register the consumer, and return it as the service describes it. Return None if another worker registered it first."""

        def has_few(error: TransientError) -> bool:
            # The stream may have its maximum of consumers. More time would not help, so the attempts are limited.
            return isinstance(error, ThrottledError) and self._retries.register.max_outage_ms is not None

        async def register() -> ConsumerDescription:
            if not may_register():
                raise ConsumerError(
                    f"consumer '{name}' on {stream_arn} is gone and is not registered again, because the job is stopping"
                )
            return await self._port.register_consumer(stream_arn, name, self._config.tags)

        try:
            described = await call_with_retries(
                register,
                self._retries.register,
                min_pause=lambda error: LIMIT_PAUSE_SECONDS if has_few(error) else 0.0,
                needs_few=has_few,
            )
        except ResourceInUseError:
            return None
        except RetriesExhaustedError as error:
            # The service has the same code for throttling and for a stream with its maximum of consumers. Throttling would have ended by
            # now.
            if isinstance(error.__cause__, ThrottledError):
                raise ConsumerError(_limit_reached(stream_arn, name)) from error
            raise
        log.info("registered consumer %s", described.arn)
        return described


def _is_active(described: ConsumerDescription) -> bool:
    if described.status not in ("CREATING", "ACTIVE", "DELETING"):
        raise ImpossibleStateError(
            f"consumer {described.arn} has the status {described.status!r}, which this version does not know. Please report it"
        )
    return described.status == "ACTIVE"


def _still_waiting(described: ConsumerDescription | None, stream_arn: str, name: str, timeout: float) -> str:
    status = "not there" if described is None else described.status
    return (
        f"Timeout waiting for stream consumer to become active: {name} on {stream_arn} is {status} after {timeout:g} s "
        "(flink.stream.registerstreamconsumer.timeout)"
    )


def _limit_reached(stream_arn: str, name: str) -> str:
    return (
        f"consumer '{name}' cannot be registered: {stream_arn} has its maximum of consumers (20; 50 with on-demand advantage), "
        "or too many are being registered; deregister an unused one, share a consumer with registration NONE, "
        "or read with flink.stream.recordpublisher=POLLING"
    )
