"""Stops the fetchers of this process at the first SIGTERM or Ctrl-C; the next signal acts as it does without them."""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError

log = logging.getLogger("recordpublisher.fetcher")
_NUMBERS = (signal.SIGTERM, signal.SIGINT)
REPEATED_SECONDS = 0.5


class FirstSignal:
    """Owns the time of the first signal.

    Supervisors may send one signal to the process and again to its process group, which does not count as a second signal.
    """

    def __init__(self) -> None:
        self._at: float | None = None

    def is_this(self) -> bool:
        """Return whether no signal came before."""
        is_first = self._at is None
        self._at = time.monotonic() if is_first else self._at
        return is_first

    def is_repeated(self) -> bool:
        """Return whether this signal repeats the first one, because it came within half a second."""
        return self._at is not None and time.monotonic() - self._at < REPEATED_SECONDS


class StopSignals:
    """The `stop` functions to call at the first signal, each in its own event loop. A process needs only one instance."""

    def __init__(self) -> None:
        self._stops: list[tuple[Callable[[], None], asyncio.AbstractEventLoop]] = []
        self._replaced: dict[signal.Signals, Any] = {}
        self._first = FirstSignal()

    def add(self, stop: Callable[[], None]) -> None:
        """Call `stop` in the running loop at the first signal.

        Raises: ConfigurationError outside the main thread, because Python can set a signal handler only there.
        """
        if threading.current_thread() is not threading.main_thread():
            reason = "Python handles signals in the main thread only"
            raise ConfigurationError("handle_signals", True, "False in another thread", reason=reason)
        self._stops.append((stop, asyncio.get_running_loop()))
        for number in _NUMBERS:
            if number not in self._replaced:
                self._replaced[number] = signal.signal(number, self._on_signal)

    def remove(self, stop: Callable[[], None]) -> None:
        """Forget `stop`. When none is left, restore the previous signal handlers."""
        self._stops = [each for each in self._stops if each[0] != stop]
        if not self._stops:
            self._restore()

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._first.is_this():
            for stop, loop in self._stops:
                loop.call_soon_threadsafe(_stop, stop, signal.Signals(number).name)
        elif not self._first.is_repeated():
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, before in self._replaced.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._replaced, self._first = {}, FirstSignal()


def _stop(stop: Callable[[], None], name: str) -> None:
    log.info("%s: the current write ends, then a last checkpoint is taken; a second signal ends the process", name)
    stop()


STOP_SIGNALS = StopSignals()
