"""RegistrationCalls: registers a stream consumer, waits until it is ACTIVE, and deregisters it (F8)."""

import asyncio
import logging
import random
from collections.abc import Callable

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    ConsumerError,
    FatalKinesisError,
    ImpossibleStateError,
    ResourceInUseError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.kinesis.ports import ConsumerDescription, RegistrationPort
from recordpublisher.publishers.retry import call_with_retries

from ..config import FanOutConfig

log = logging.getLogger(__name__)
_ACCESS_DENIED = ("AccessDeniedException", "AccessDenied")

LIMIT_PAUSE_SECONDS = 1.0
"""Seconds between tries of a registration that was throttled: five are allowed in a second."""


class RegistrationCalls:
    """Makes the calls about one consumer, with retries. Keeps no state between calls."""

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
        """Return the ARN of the ACTIVE consumer; register it if it does not exist.

        If the consumer is being deleted, wait until it is gone and register it again. If another subtask registers it,
        share it.

        Raises: ConsumerError after the time-out, if the stream has its maximum of consumers, or if `may_register`
        returns False because the job is stopping.
        """
        deadline = self._clock.monotonic() + self._config.register_timeout
        attempt = 0
        while True:
            described = await self.describe(stream_arn, name)
            if described is None:
                described = await self._register(stream_arn, name, may_register)
                if described is not None:  # the wait until an old consumer of this name is deleted does not count
                    deadline = self._clock.monotonic() + self._config.register_timeout
            if described is not None and _is_active(described):
                return described.arn
            if self._clock.monotonic() > deadline:
                raise ConsumerError(_still_waiting(described, stream_arn, name, self._config.register_timeout))
            await asyncio.sleep(self._retries.describe_consumer.delay_seconds(attempt, self._draw))
            attempt += 1

    async def deregister(self, stream_arn: str, name: str) -> None:
        """Deregister a consumer, unless it is gone or being deleted."""
        described = await self.describe(stream_arn, name)
        if described is None or described.status == "DELETING":
            return
        try:
            await call_with_retries(lambda: self._port.deregister_consumer(described.arn), self._retries.deregister)
        except (ResourceNotFoundError, ResourceInUseError):  # another process deregistered it
            return
        log.info("deregistered consumer %s", described.arn)

    async def _register(
        self, stream_arn: str, name: str, may_register: Callable[[], bool]
    ) -> ConsumerDescription | None:
        """Register the consumer. Return None if another subtask registered it first."""

        def has_few(
            error: TransientError,
        ) -> bool:  # the stream may have its maximum of consumers, which more time cannot fix
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
            if isinstance(error.__cause__, ThrottledError):
                raise ConsumerError(_limit_reached(stream_arn, name)) from error
            raise
        log.info("registered consumer %s", described.arn)
        return described


def _is_active(described: ConsumerDescription) -> bool:
    if described.status not in ("CREATING", "ACTIVE", "DELETING"):
        raise ImpossibleStateError(f"consumer {described.arn} has the unknown status {described.status!r}")
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
