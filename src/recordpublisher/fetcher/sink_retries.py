"""Repeats a sink's call to its service while the service does not answer (`SinkContext.retry`)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..publishers.errors import FencedError, PluginError, RetriesExhaustedError, TransientError
from ..publishers.properties.job_properties import DRAIN_TIMEOUT
from ..publishers.retry import asked_pause, call_with_retries, duration_words
from ..publishers.safe_text import repr_of, text_of

if TYPE_CHECKING:
    from .sink import SinkContext

log = logging.getLogger("recordpublisher.outages")
T = TypeVar("T")
LOGGED_PAUSE_SECONDS, MINUTE = 5.0, 60.0
"""A pause that a service asks for is logged if it is this long, once a minute (both in seconds)."""
PERMISSION_SECONDS = 0.1
"""Seconds between two checks whether the process may write."""
STOP_SECONDS = 1.0
"""Seconds between two checks whether the job has begun to end."""


class RetriedCall(Generic[T]):
    """Repeats one call until it succeeds.

    The arguments are described in `SinkContext.retry`; `context` limits how long the call is repeated. Each repetition needs the permission
    to write, because another worker may have acquired the shard since the first call.
    """

    def __init__(
        self,
        context: SinkContext,
        call: Callable[[], Awaitable[T]],
        on: type[Exception] | tuple[type[Exception], ...],
        service: str,
    ) -> None:
        classes: tuple[object, ...] = on if isinstance(on, tuple) else (on,)
        if not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
            raise PluginError(f"`retry`: 'on' must be a subclass of Exception or a tuple of them, not {repr_of(on)}")
        given: object = call
        if not callable(given):
            hint = ": write `lambda: ...` around the call" if inspect.isawaitable(given) else ""
            raise PluginError(f"`retry` needs an async function without arguments, not {repr_of(given)}{hint}")
        self._context, self._call, self._on, self._service = context, call, on, service
        # A call in `open` has no permission yet, and needs none.
        self._needs_permission = context.may_write()
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.TimerHandle | None = None
        self._stopped_at = math.inf
        self._last: TransientError | None = None
        self._failed_at: float | None = None
        self._not_before = -math.inf
        self._told_at = -math.inf

    async def run(self) -> T:
        """Make the call until it succeeds or may not be repeated, and return its result.

        Raises: RetriesExhaustedError if the call has failed for too long, or if the job is ending; FencedError if another worker has
        acquired the shard; PluginError if the call does not return an awaitable; every other error of the call at once. `SinkContext.retry`
        says how long.
        """
        self._look_for_stop()
        try:
            return await call_with_retries(
                self._attempt,
                self._context.outages,
                # `_attempt` itself waits as long as the service asks, and ends that wait at a stop.
                min_pause=lambda error: 0.0,
                service=self._service,
            )
        finally:
            if self._look is not None:
                self._look.cancel()

    async def _attempt(self) -> T:
        if self._last is not None:
            await self._wait_for_permission(self._last)
        try:
            made = self._call()
            if inspect.isawaitable(made):
                return await made
        except TransientError as error:
            self._note(error)
            raise
        except self._on as error:
            last = TransientError(self._service, type(error).__name__, text_of(error))
            self._note(last)
            raise last from error
        # Not raised above, where `on=Exception` would make the call again and again.
        raise PluginError(f"`retry` needs an async function without arguments, but the call returned {repr_of(made)}")

    def _note(self, error: TransientError) -> None:
        """Remember the error, and when the next call may be made: after the error's `retry_after`, but within the job's longest outage."""
        now, outage_ms = self._loop.time(), self._context.outages.max_outage_ms
        self._failed_at = now if self._failed_at is None else self._failed_at
        latest = math.inf if outage_ms is None else self._failed_at + outage_ms / 1000
        self._last, self._not_before = error, min(now + asked_pause(error), latest)
        # The log of outages has no line before the next call fails, and a service may ask for minutes.
        pause = self._not_before - now
        if pause >= LOGGED_PAUSE_SECONDS and now - self._told_at >= MINUTE:
            self._told_at = now
            log.warning(
                "%s asks to wait %s before the next call: %s", self._service, duration_words(pause), text_of(error)
            )

    async def _wait_for_permission(self, last: TransientError) -> None:
        context = self._context
        self._check_stop(last)
        # Waited for in short pauses, because a stop must not take as long as a service may ask for.
        while (left := self._not_before - self._loop.time()) > 0 and not context.is_lost():
            await asyncio.sleep(min(left, STOP_SECONDS))
            self._check_stop(last)
        while self._needs_permission and not context.may_write() and not context.is_lost():
            await asyncio.sleep(PERMISSION_SECONDS)
            self._check_stop(last)
        if context.is_lost():
            raise FencedError(
                f"{self._service} is not called again, because another worker has acquired the shard of the batch, and writes its records; "
                f"the last error: {text_of(last)}"
            )

    def _look_for_stop(self) -> None:
        """Check every `STOP_SECONDS` whether the job has begun to end, even during a call, and remember when."""
        if self._context.is_stopping():
            self._stopped_at = self._loop.time()
        else:
            self._look = self._loop.call_later(STOP_SECONDS, self._look_for_stop)

    def _check_stop(self, last: TransientError) -> None:
        seconds = self._context.drain_seconds
        if self._loop.time() - self._stopped_at >= seconds:
            raise RetriesExhaustedError(
                f"{text_of(last)}; the call is not repeated, because the job began to end {seconds:g} s ago ({DRAIN_TIMEOUT.key})"
            ) from last
