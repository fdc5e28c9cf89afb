"""Stops a job at a signal, logs what its end waits for, and shortens the error that it reports."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from recordpublisher.fetcher.checkpoints.checkpoint_schedule import CheckpointAge
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.errors import (
    ConfigurationError,
    ConsumerError,
    DeserializationError,
    FatalKinesisError,
    FencedError,
    RecordPublisherError,
    RetriesExhaustedError,
    SinkError,
    StateError,
    StreamNotFoundError,
)
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.user_code import cause_in_user_code, describe_error, is_raised_in_user_code

NOTICE_SECONDS, LOOK_SECONDS = 10.0, 1.0


class StopSignals:
    """Calls the `stop` functions of all open jobs at the first signal, each in the event loop of its job. A process needs one instance."""

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
                self._replaced[number] = before = signal.signal(number, self._on_signal)
                # For SIGINT, asyncio has a handler of its own.
                if number == signal.SIGTERM and callable(before):
                    log.warning(
                        "handle_signals replaces another handler of SIGTERM (%s), which the first SIGTERM does not reach now. In a "
                        "server that handles signals itself, leave handle_signals out, and call stop() when the server ends",
                        getattr(before, "__qualname__", type(before).__name__),
                    )

    def remove(self, stop: Callable[[], None]) -> None:
        """Forget `stop`. When none is left, restore the previous signal handlers."""
        self._stops = [each for each in self._stops if each[0] != stop]
        if not self._stops:
            self._restore()

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._first.is_this():
            for stop, loop in self._stops:
                # The loop of a fetcher that was never closed may be closed. The others are stopped nevertheless.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_stop, stop, signal.Signals(number).name)
        elif not self._first.is_repeated():
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, before in self._replaced.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._replaced, self._first = {}, FirstSignal()


async def tell_what_drains(
    sink: str,
    unfinished: Callable[[], Unfinished | None],
    hung_publishers: Callable[[], Sequence[str]],
    began: asyncio.Event | None = None,
    error: Callable[[], BaseException | None] = lambda: None,
    checkpoints: CheckpointAge | None = None,
    state_place: str = "",
    stores_positions: bool = True,
) -> None:
    """Log every `NOTICE_SECONDS` what the end of a job waits for: hung publishers, then the sink. Run until cancelled.

    When the last hung publisher has ended, `NOTICE_SECONDS` pass before the sink is named.

    - `unfinished`: returns the records that the sink has not finished, as far as it knows.
    - `hung_publishers`: returns the publishers that have not ended although they were cancelled.
    - `began`: an event that is set when the drain begins; None if it has begun.
    - `error`: returns the error that ends the job, if it has failed.
    - `checkpoints`: knows for how many records no checkpoint is stored. `state_place`: the place where positions are stored.
    - `stores_positions`: whether the next start continues at stored positions, which may be those next to the sink's rows.
    """
    if began is not None:
        await began.wait()
    waited, next_notice, were_hung = 0.0, NOTICE_SECONDS, False
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        waited += LOOK_SECONDS
        publishers = hung_publishers()
        if were_hung and not publishers:
            next_notice = waited + NOTICE_SECONDS
        were_hung = bool(publishers)
        if waited < next_notice:
            continue
        next_notice += NOTICE_SECONDS
        left = unfinished()
        what = f"the sink '{sink}' ({'a call that runs, a lock in a database' if left is None else left.reason})"
        if checkpoints is not None and checkpoints.storing_ms and not (left and left.records):
            count, lasted = (
                counted(checkpoints.unstored_records, "record"),
                duration_words(checkpoints.storing_ms / 1000),
            )
            why = checkpoints.storing_error or f"no answer from {state_place or f'the sink {sink!r}'}"
            what = f"its last checkpoint, with the positions of {count}, which could not be stored for {lasted}: {why}"
        if publishers:
            what = f"{'; '.join(publishers[:3])}. `run` of a publisher must end when its task is cancelled, and not catch CancelledError"
        failed = error()
        state = "has been draining" if failed is None else f"has failed ({describe_error(failed)}), and has been ending"
        run_log.warning(
            "the job %s for %.0f s: it waits for %s. If the process is ended now (a second signal ends `recordpublisher run`), %s",
            state,
            waited,
            what,
            "records after the last checkpoint are read again"
            if stores_positions
            else "no start continues at these records, because no positions are stored",
        )


# --- the end of a process, and its exit codes -----------------------------------------------------------------------------------------

FAILED, BAD_CONFIGURATION = 1, 2
"""Exit codes of a job."""
CLOSING_SECONDS = 20.0
"""Time that a job gets after its drain timeout, for a checkpoint and for handlers that clean up."""
run_log = logging.getLogger("recordpublisher.run")


def stop_on_signals(drain: Callable[[], None], give_up: Callable[[], None] = lambda: None) -> None:
    """Call `drain` in the running loop at the first signal.

    At the second signal, call `give_up` and exit with code 1. This happens at once, even if user code blocks the loop.
    """
    loop = asyncio.get_running_loop()
    first = FirstSignal()

    def on_signal(_number: int, _frame: object) -> None:
        if first.is_this():
            loop.call_soon_threadsafe(drain)
        elif not first.is_repeated():
            try:
                run_log.warning("second signal: the process ends at once, without a last checkpoint")
                give_up()
            finally:
                os._exit(FAILED)

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows has no such handlers.
            loop.add_signal_handler(number, lambda: None)  # This makes the loop remove our handler when it is closed.
        signal.signal(number, on_signal)


def call_on_eof(descriptor: int, ended: Callable[[], None]) -> None:
    """Call `ended` when the other end of the pipe `descriptor` is closed, for any reason."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended()

    loop.add_reader(descriptor, readable)


class WorkerFailedError(RecordPublisherError):
    """A worker failed (it has logged the error itself) or was killed.

    - `code`: the worker's exit code, or the negative number of the signal that killed the worker.
    - `exit_code`: the exit code of the job.
    """

    def __init__(self, number: int, code: int) -> None:
        self.code = code
        self.exit_code = BAD_CONFIGURATION if code == BAD_CONFIGURATION else FAILED
        how = f"was killed by {_name(-code)}" if code < 0 else f"failed with exit code {code}"
        super().__init__(f"worker {number} {how}; the job ends")


def _name(number: int) -> str:
    """Return the name of a signal. Real-time signals between SIGRTMIN and SIGRTMAX do not have one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- the fetchers that the first signal stops -----------------------------------------------------------------------------------------

log = logging.getLogger("recordpublisher.fetcher")
_NUMBERS = (signal.SIGTERM, signal.SIGINT)
REPEATED_SECONDS = 0.5


class FirstSignal:
    """Distinguishes the first signal, its repetition and a second signal.

    A supervisor may send one signal to the process and again to its process group. That repetition is not a second signal.
    """

    def __init__(self) -> None:
        self._at: float | None = None

    def is_this(self) -> bool:
        """Return whether this is the first signal of the process."""
        is_first = self._at is None
        self._at = time.monotonic() if is_first else self._at
        return is_first

    def is_repeated(self) -> bool:
        """Return whether this signal repeats the first one, because it came within half a second."""
        return self._at is not None and time.monotonic() - self._at < REPEATED_SECONDS


def _stop(stop: Callable[[], None], name: str) -> None:
    log.info("%s: the current write ends, then a last checkpoint is taken; a second signal ends the process", name)
    stop()


STOP_SIGNALS = StopSignals()


# --- short tracebacks -----------------------------------------------------------------------------------------------------------------

error_log = logging.getLogger("recordpublisher.errors")
_TOLD = (
    ConfigurationError, ConsumerError, FatalKinesisError, FencedError, RetriesExhaustedError, StateError, StreamNotFoundError,
)  # fmt: skip
"""Errors whose message says everything, unless user code was involved."""
_WITH_CAUSE = (DeserializationError, SinkError)
"""Errors whose cause was raised by user code or a plugin."""


class _ShortErrors(ContextDecorator):
    """Shortens a traceback: it leaves out calls inside this package, and chained exceptions in which no user code took part.

    The removed parts are logged at level DEBUG.

    An error that a sink or plugin of another package has raised is left as it is.
    """

    def __enter__(self) -> None:
        """Do nothing before the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, (*_TOLD, *_WITH_CAUSE)):
            return
        error_log.debug("what led to the error", exc_info=error)
        if not is_raised_in_user_code(error, or_installed=True):
            raise error.with_traceback(None) from (
                cause_in_user_code(error) if isinstance(error, _TOLD) else error.__cause__
            )


SHORT_ERRORS = _ShortErrors()
"""Shortens the errors of the blocks and functions that users call."""
