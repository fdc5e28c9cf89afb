"""RunningCalls: with which records handlers run, and a warning of one that runs long."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from recordpublisher.fetcher.sink import RecordsCall, Traced
from recordpublisher.publishers.clock import Clock

from .unhandled_record import UnhandledRecord

log = logging.getLogger("recordpublisher.plugins.sinks.map")
WARN_SECONDS = 60.0
"""After how long a call is named in the log, and again."""
MILLISECOND = 0.001


class RunningCalls:
    """Owns the calls of the handler that run, by their first record, the oldest one first."""

    def __init__(self, call: RecordsCall, name_of: Callable[[str], str], clock: Clock) -> None:
        """`name_of`: the name of a stream's handler."""
        self._untraced_call = self._call = call
        self._name_of = name_of
        self._clock = clock
        self._began: dict[UnhandledRecord, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(self, traced: Traced) -> None:
        """Call the handler so."""
        self._call = traced(self._untraced_call)

    async def call(self, first: UnhandledRecord, records: Any) -> Any:
        """Call the handler with a record, or with a list that begins with it. Raises: what the call raises."""
        self._began[first] = self._clock.monotonic()
        if self._timer is None:
            self._look_in(WARN_SECONDS)
        try:
            return await self._call(records)
        finally:
            del self._began[first]

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._began)

    def oldest(self) -> tuple[str, object]:
        """The call that has run longest, in words, and what stands for it; ("", None): none runs."""
        for item, began in self._began.items():
            name, seconds = self._name_of(item.record.stream), self._clock.monotonic() - began
            return f"the handler {name} has run for {seconds:.0f} s with {item}", (item, began)
        return "", None

    def close(self) -> None:
        """Warn no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        for began in self._began.values():
            left = WARN_SECONDS - (self._clock.monotonic() - began)
            is_long = left < MILLISECOND  # a clock's rounding is no reason to look again at once
            if is_long:
                log.warning(
                    "%s; the position of its shard stays before it (calls that run: %d)",
                    self.oldest()[0],
                    len(self._began),
                )
            self._look_in(WARN_SECONDS if is_long else left)
            return
