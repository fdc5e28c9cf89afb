"""The properties that enhanced fan-out reads. They are parsed once, and checked against each other (C2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..errors import (
    ConfigurationError,
    KinesisError,
    causes_of,
)
from ..properties.config_fields import of_property, of_retries, values_of
from ..properties.fan_out_properties import (
    CONSUMER_ARN,
    CONSUMER_NAME,
    CONSUMER_TAGS,
    DEREGISTER_TIMEOUT,
    DEREGISTRATION,
    RECOVERABLE_ERRORS,
    REGISTER_TIMEOUT,
    REGISTRATION,
    SUBSCRIBE_TIMEOUT,
)
from ..properties.properties import Properties
from ..properties.reading_properties import (
    DEREGISTER_RETRIES,
    DESCRIBE_CONSUMER_RETRIES,
    DESCRIBE_STREAM_RETRIES,
    LIST_SHARDS_RETRIES,
    REGISTER_RETRIES,
    SUBSCRIBE_RETRIES,
)
from ..retry import RetryPolicy
from ..shards import ConsumerArn, is_named_arn, stream_name

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")  # This is the service's pattern for a ConsumerName.
_NAME_WORDS = "1 to 128 of the characters a-z A-Z 0-9 _ . -"


class RegistrationType(StrEnum):
    """When the consumer is registered, and whether this job registers it."""

    LAZY = "LAZY"
    EAGER = "EAGER"
    NONE = "NONE"


class DeregistrationType(StrEnum):
    """Whether the consumer is deregistered after its last use, if this job registers it."""

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
"""How long a subscription may bring no event before it is replaced by a new one (seconds). The service sends an event about every 5 s."""
UNREAD_SECONDS = 60.0
"""How long a subscription may stay unread because of back-pressure before it is closed (seconds).

Another one is opened when there is room.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutConfig:
    """The settings of a job that reads by enhanced fan-out. Time-outs are in seconds.

    - `configured_arns`: the ARNs of consumers that are already registered, by stream name in lower case.
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
        """Return the settings in the properties. Raises: ConfigurationError if a property is invalid."""
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
        """Return the ARN of the consumer that a property sets for a stream, or None if there is none.

        With LAZY the property is ignored. The consumer is then looked up by its name.
        """
        # Keys are compared without case, because Spark lower-cases them. If two streams differ only in case, the ARN decides.
        given = self.configured_arns.get(stream.lower())
        applies = given is not None and given.stream == stream and self.registration is not RegistrationType.LAZY
        return given if applies else None

    def check_streams(self, streams: Iterable[str]) -> None:
        """Check that each stream (name or ARN) has a consumer ARN if the registration type is NONE.

        Raises: ConfigurationError in two cases:

        - An ARN is missing.
        - A stream is given as NAME=ARN, and the registration type is not LAZY.
        """
        streams = tuple(streams)
        # The key of a configured ARN has the stream's real name, so it cannot be found by the name in NAME=ARN.
        renamed = [stream for stream in streams if is_named_arn(stream)]
        if renamed and self.registration is not RegistrationType.LAZY:
            reason = f"only LAZY can find the consumer of a stream that is given as NAME=ARN: {renamed[0]}"
            raise ConfigurationError(REGISTRATION.key, self.registration, "LAZY", reason=reason)
        names = map(stream_name, streams)
        missing = [CONSUMER_ARN.key + name for name in names if self.configured_arn(name) is None]
        if missing and not self.registers:
            reason = f"{REGISTRATION.key} is NONE, and no consumer ARN is set for: {', '.join(missing)}"
            raise ConfigurationError(missing[0], None, "the ARN of a registered stream consumer", reason=reason)


def _consumer_name(properties: Properties, registration: RegistrationType) -> str | None:
    name = properties.value(CONSUMER_NAME)
    if name is None and registration is not RegistrationType.NONE:
        reason = f"no valid enhanced fan-out consumer name is set, and {REGISTRATION.key}={registration} needs one"
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
    """The errors that are retried without limit, and do not count as failures (the recoverable errors of Flink's connector).

    A property has the name of such an error: one of this library's error classes, a dotted Python class, or an AWS error code. The code may
    be written as the Java SDK's class name. The keys of these properties have an index, from 0. All of them are used, while the connector
    uses only the first. An error is also retried in this way if one of its causes has such a name.
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Properties) -> RecoverableErrors:
        """Parse the names. Raises: ConfigurationError if the indices do not count from 0, or if a text cannot be the name of an error."""
        given = properties.with_prefix(RECOVERABLE_ERRORS)
        indices = sorted(int(_error_index(key, value)) for key, value in given.items())
        if indices != list(range(len(indices))):
            missing = min(set(range(len(indices) + 1)).difference(indices))
            raise ConfigurationError(
                f"{RECOVERABLE_ERRORS.key}{missing}].exception",
                None,
                _ERRORS_WORDS,
                reason="a higher index is set, and the indices count from 0 without a gap",
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
