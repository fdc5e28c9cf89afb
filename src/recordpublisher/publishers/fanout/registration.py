"""Registers the consumer of each stream for enhanced fan-out, and deregisters it after its last use (F4, F8).

`ConsumerRegistrar` knows the consumers of one factory, `ConsumerRefCounts` counts their uses in this process, and `RegistrationCalls` makes
the calls. In this file a consumer is always one that is registered with a stream.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..clock import Clock
from ..errors import (
    ConfigurationError,
    ConsumerError,
    FatalKinesisError,
    ImpossibleStateError,
    KinesisError,
    RecordPublisherError,
    ResourceInUseError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    ThrottledError,
    TransientError,
    causes_of,
)
from ..kinesis.ports import ConsumerDescription, RegistrationPort
from ..properties.config_fields import of_property, of_retries, values_of
from ..properties.properties import Properties
from ..properties.reading_properties import (
    CONSUMER_ARN,
    CONSUMER_NAME,
    CONSUMER_TAGS,
    DEREGISTER_RETRIES,
    DEREGISTER_TIMEOUT,
    DEREGISTRATION,
    DESCRIBE_CONSUMER_RETRIES,
    DESCRIBE_STREAM_RETRIES,
    LIST_SHARDS_RETRIES,
    RECOVERABLE_ERRORS,
    REGISTER_RETRIES,
    REGISTER_TIMEOUT,
    REGISTRATION,
    SUBSCRIBE_RETRIES,
    SUBSCRIBE_TIMEOUT,
)
from ..retry import RetryPolicy, call_with_retries
from ..shards import ConsumerArn, has_own_name, stream_name

log = logging.getLogger(__name__)

_ACCESS_DENIED = ("AccessDeniedException", "AccessDenied")
LIMIT_PAUSE_SECONDS = 1.0
"""Seconds between two attempts of a registration that was throttled. The service allows five a second."""


class ConsumerRegistrar:
    """Keeps the ARN of the consumer of each stream of one factory, and which consumers the factory uses.

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
        """Return the ARN of the consumer to subscribe with. `ensure` must have been called for the stream."""
        return self._arns[stream]

    def keep_registered(self) -> None:
        """Let `close` deregister no consumer, because the job continues in other processes, or is started again after an error."""
        self._keeps_registered = True

    async def ensure(self, stream: str, stream_arn: str | None = None) -> None:
        """Make sure that the stream has an ACTIVE consumer. If several shards call this, one does the work and the others wait.

        Raises: StreamNotFoundError if the stream does not exist, ConsumerError if the consumer cannot be registered.
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
        """Check a consumer that the service did not find, and register it again if it is gone. Return False if it still exists (F4).

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
        """End the use of all consumers. Each one that no other factory uses is deregistered, unless one of its users wants to keep it.

        If a deregistration fails, this is logged, not raised.
        """
        if self.is_stopping:
            return
        self.is_stopping = True
        for key in self._keys.values():
            await self._release(key)

    async def release(self, stream: str) -> None:
        """End the use of the consumer of one stream, as `close` does. `ensure` registers it again."""
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
            raise ImpossibleStateError(
                "internal error: a job that registers its consumer has no consumer name. Please report it"
            )
        return self._config.consumer_name

    async def _is_active(self, stream: str) -> bool:
        key = self._keys[stream]
        described = await self._registration.describe(key.stream_arn, key.name)
        return described is not None and described.arn == self._arns[stream] and described.status == "ACTIVE"

    async def _delay_start(self) -> None:
        """Wait a short random time if the registration is LAZY."""
        # The service allows 5 registrations a second, and many workers may start at once. Flink's connector waits in the same way.
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


def _message_of_vanished(stream: str, arn: str) -> str:
    return (
        f"the consumer of stream '{stream}' is not registered (or no longer): {arn}; registration is NONE, so register it by command and "
        f"set flink.stream.efo.consumerarn.{stream}, or let LAZY or EAGER do it"
    )


class ConsumerRefCounts:
    """Counts the uses of each consumer in this process, over all its event loops and threads.

    Uses in other processes are not counted. If a process deregisters a consumer that another process still uses, the other process
    registers it again (F4).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ConsumerKey, _RefCount] = {}

    def acquire(self, key: ConsumerKey) -> None:
        """Count one more use of the consumer."""
        with self._lock:
            self._counts.setdefault(key, _RefCount()).count += 1

    def release(self, key: ConsumerKey, *, keeps_registered: bool) -> bool:
        """Count one use less. Return whether that was the last one, and no user wanted to keep the consumer registered."""
        with self._lock:
            counted = self._counts[key]
            counted.count -= 1
            counted.keeps_registered |= keeps_registered
            if counted.count > 0:
                return False
            del self._counts[key]
            return not counted.keeps_registered


PROCESS_REF_COUNTS = ConsumerRefCounts()
"""The counts of this process, which all factories share by default."""


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


class RegistrationCalls:
    """Makes the calls about consumers, with retries. It keeps nothing between two calls."""

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

        Raises: StreamNotFoundError if the stream does not exist, FatalKinesisError that names the missing permission if
        access is denied.
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
        """Return the ARN of the consumer as soon as it is ACTIVE; register it if it does not exist.

        If the consumer is being deleted, wait until it is gone, and register it again. If another worker registers it, use that one.

        `may_register`: returns False while the job is stopping. Raises: ConsumerError after the time-out, if the stream has its maximum of
        consumers, or if the consumer is gone while the job is stopping.
        """
        deadline = self._clock.monotonic() + self._config.register_timeout
        attempt = 0
        while True:
            described = await self.describe(stream_arn, name)
            if described is None:
                described = await self._register(stream_arn, name, may_register)
                # The time-out begins when an old consumer of this name is deleted, so the wait for that does not count.
                if described is not None:
                    deadline = self._clock.monotonic() + self._config.register_timeout
            if described is not None and _is_active(described):
                return described.arn
            if self._clock.monotonic() > deadline:
                raise ConsumerError(_still_waiting(described, stream_arn, name, self._config.register_timeout))
            await asyncio.sleep(self._retries.describe_consumer.delay_seconds(attempt, self._draw))
            attempt += 1

    async def deregister(self, stream_arn: str, name: str) -> None:
        """Deregister a consumer. Do nothing if it is gone or being deleted."""
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
        """Register the consumer. Return None if another worker registered it first."""

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


# FanOutConfig: the properties of enhanced fan-out, parsed, and checked against each other once (C2).

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")  # The service's pattern for a ConsumerName.
_NAME_WORDS = "1 to 128 of the characters a-z A-Z 0-9 _ . -"


class RegistrationType(StrEnum):
    """When the consumer is registered, and whether this job does it (F8)."""

    LAZY = "LAZY"
    EAGER = "EAGER"
    NONE = "NONE"


class DeregistrationType(StrEnum):
    """Whether the last user of the consumer deregisters it, if this job registers it (F8)."""

    LAST_OUT = "LAST_OUT"
    NEVER = "NEVER"


@dataclass(frozen=True, slots=True)
class Retries:
    """The retry policy of each operation that enhanced fan-out calls."""

    subscribe: RetryPolicy = of_retries(SUBSCRIBE_RETRIES)
    describe_stream: RetryPolicy = of_retries(DESCRIBE_STREAM_RETRIES)
    describe_consumer: RetryPolicy = of_retries(DESCRIBE_CONSUMER_RETRIES)
    register: RetryPolicy = of_retries(REGISTER_RETRIES)
    deregister: RetryPolicy = of_retries(DEREGISTER_RETRIES)
    list_shards: RetryPolicy = of_retries(LIST_SHARDS_RETRIES)


INACTIVITY_SECONDS = 20.0
"""If a subscription brings no event for this time, it is opened again (seconds). The service sends an event about every 5 s."""
UNREAD_SECONDS = 60.0
"""If a subscription is not read for this time, because of back-pressure, it is closed until there is room again (seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutConfig:
    """The settings of a job that reads by enhanced fan-out; time-outs are in seconds.

    `configured_arns`: the consumers that are registered already, by stream name in lower case.
    """

    registration: RegistrationType
    consumer_name: str | None
    configured_arns: Mapping[str, ConsumerArn]
    deregistration: DeregistrationType = of_property(DEREGISTRATION, kind=DeregistrationType)
    retries: Retries
    recoverable: RecoverableErrors
    tags: Mapping[str, str] | None = of_property(CONSUMER_TAGS)
    subscribe_timeout: float = of_property(SUBSCRIBE_TIMEOUT)
    inactivity_timeout: float = INACTIVITY_SECONDS
    unread_timeout: float = UNREAD_SECONDS
    register_timeout: float = of_property(REGISTER_TIMEOUT)
    deregister_timeout: float = of_property(DEREGISTER_TIMEOUT)

    @classmethod
    def of(cls, properties: Properties) -> FanOutConfig:
        """Parse the properties. Raises: ConfigurationError with key, value and valid values, if a property is invalid."""
        registration = RegistrationType(properties.value(REGISTRATION))
        return cls(
            registration=registration,
            consumer_name=_consumer_name(properties, registration),
            configured_arns={
                stream: _consumer_arn(stream, text) for stream, text in properties.with_prefix(CONSUMER_ARN).items()
            },
            retries=Retries(**values_of(Retries, properties)),
            recoverable=RecoverableErrors.of(properties),
            **values_of(cls, properties),
        )

    @property
    def registers(self) -> bool:
        """Whether this job registers its consumer."""
        return self.registration is not RegistrationType.NONE

    @property
    def deregisters(self) -> bool:
        """Whether this job's consumer is deregistered after its last use."""
        return self.registers and self.deregistration is DeregistrationType.LAST_OUT

    def configured_arn(self, stream: str) -> ConsumerArn | None:
        """Return the consumer that a property sets for a stream, or None. With LAZY the property is ignored, and the consumer is looked
        up by name.
        """
        # Keys are compared without case, because Spark lower-cases them. If two streams differ only in case, the ARN decides.
        given = self.configured_arns.get(stream.lower())
        applies = given is not None and given.stream == stream and self.registration is not RegistrationType.LAZY
        return given if applies else None

    def check_streams(self, streams: Iterable[str]) -> None:
        """Check that each stream (name or ARN) has a consumer ARN if the registration type is NONE.

        Raises: ConfigurationError if an ARN is missing, or if a stream that was given as NAME=ARN is not registered LAZY.
        """
        streams = tuple(streams)
        # The key of a configured ARN has the stream's real name, so it cannot be found by the name in NAME=ARN.
        renamed = [stream for stream in streams if has_own_name(stream)]
        if renamed and self.registration is not RegistrationType.LAZY:
            reason = f"{renamed[0]} has a name of its own"
            raise ConfigurationError(REGISTRATION.key, self.registration, "LAZY", reason=reason)
        names = map(stream_name, streams)
        missing = [CONSUMER_ARN.key + name for name in names if self.configured_arn(name) is None]
        if missing and not self.registers:
            reason = f"with registration NONE no consumer ARN is set for: {', '.join(missing)}"
            raise ConfigurationError(missing[0], None, "the ARN of a registered stream consumer", reason=reason)


def _consumer_name(properties: Properties, registration: RegistrationType) -> str | None:
    name = properties.value(CONSUMER_NAME)
    if name is None and registration is not RegistrationType.NONE:
        reason = f"no valid enhanced fan-out consumer name is set, {registration} registration needs one"
        raise ConfigurationError(CONSUMER_NAME.key, None, _NAME_WORDS, reason=reason)
    if name is not None and not _NAME.fullmatch(name):
        raise ConfigurationError(CONSUMER_NAME.key, name, _NAME_WORDS)
    return name


def _consumer_arn(stream: str, text: str) -> ConsumerArn:
    arn = ConsumerArn.parse(text.strip())
    if arn is None or arn.stream.lower() != stream:
        raise ConfigurationError(
            CONSUMER_ARN.key + stream, text, f"arn:aws:kinesis:<region>:<account>:stream/{stream}/consumer/<name>:<id>"
        )
    return arn


_ERROR_KEY = re.compile(r"(\d+)\]\.exception")
_ERROR_NAME = re.compile(r"\w+([.$]\w+)*")
_ERRORS_WORDS = (
    f"{RECOVERABLE_ERRORS.key}0].exception=<name>, then [1] and so on; a name is an AWS error code or an error class"
)


@dataclass(frozen=True, slots=True)
class RecoverableErrors:
    """The errors that are retried without being counted, as with the recoverable errors of Flink's connector.

    A name is one of this library's error classes, a dotted Python class, or an AWS error code, which may be written as the Java SDK's class
    name. All indices are used (the connector uses only the first). All causes of an error are searched.
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Properties) -> RecoverableErrors:
        """Parse the names. Raises: ConfigurationError if the indices do not count from zero, or a name is not a valid error name."""
        given = properties.with_prefix(RECOVERABLE_ERRORS)
        indices = sorted(int(_error_index(key, value)) for key, value in given.items())
        if indices != list(range(len(indices))):
            raise ConfigurationError(
                f"{RECOVERABLE_ERRORS.key}{indices[0]}].exception",
                None,
                _ERRORS_WORDS,
                reason="it is missing below a higher index",
            )
        return cls(frozenset(name.strip() for name in given.values()))

    def __contains__(self, error: BaseException) -> bool:
        return bool(self.names) and any(self._names(cause) for cause in causes_of(error))

    def _names(self, error: BaseException) -> bool:
        if isinstance(error, KinesisError) and any(_last_part(name) == error.code for name in self.names):
            return True
        return any(
            kind.__name__ in self.names or f"{kind.__module__}.{kind.__qualname__}" in self.names
            for kind in type(error).__mro__
        )


def _error_index(key: str, value: str) -> str:
    found = _ERROR_KEY.fullmatch(key)
    if found is None or not _ERROR_NAME.fullmatch(value.strip()):
        raise ConfigurationError(RECOVERABLE_ERRORS.key + key, value, _ERRORS_WORDS)
    return found[1]


def _last_part(name: str) -> str:
    return re.split(r"[.$]", name)[-1]
