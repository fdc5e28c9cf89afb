"""Watches, from a thread of its own, whether the event loop of a job runs, and logs the call that blocks it."""

import asyncio
import logging
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType

log = logging.getLogger("recordpublisher.run")
CHECK_SECONDS = 1.0
BLOCKED_CHECKS = 10
"""Checks in a row without a sign of the loop, after which it counts as blocked. Checks are counted, and not time: while the process is
suspended this thread does not check either."""
FRAMES = 12
_ASYNCIO = str(Path(asyncio.__file__).parent)
"""The loop's own calls say nothing about what blocks it."""


class LoopWatch:
    """Logs the stack of the event loop's thread once if a call does not return for 10 s.

    Nothing else can tell while the loop is blocked: reading, heartbeats, checkpoints, metrics and the stop wait for the call. Use:
    `with LoopWatch():` in the loop's thread.
    """

    def __init__(self, check_seconds: float = CHECK_SECONDS) -> None:
        self._check_seconds = check_seconds
        self._has_run = False
        self._has_ended = threading.Event()
        self._tick: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._note()
        self._watch = threading.Thread(target=self._check, name="recordpublisher loop watch", daemon=True)
        self._watch.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended.set()
        self._watch.join(1)  # It ends at once, so that a program finds no thread of ours after a run.
        if self._tick is not None:
            self._tick.cancel()

    def _note(self) -> None:
        self._has_run = True
        self._tick = self._loop.call_later(self._check_seconds / 2, self._note)

    def _check(self) -> None:
        missed = 0
        while not self._has_ended.wait(self._check_seconds):
            if self._has_run:
                self._has_run, missed = False, 0
                continue
            missed += 1
            if missed == BLOCKED_CHECKS:
                log.error(
                    "a call has blocked the event loop for %.0f s, and reading, heartbeats and the stop wait for it: make it `await`, or "
                    "run it in a thread. It is here:\n%s",
                    missed * self._check_seconds,
                    _stack_of(self._thread),
                )


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "its thread has ended"
    calls = [call for call in traceback.extract_stack(frame) if not call.filename.startswith(_ASYNCIO)]
    return "".join(traceback.format_list(calls[-FRAMES:])).rstrip()
