"""The user's function as a coroutine function: awaited, or called in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine; also for partial functions and for objects with an async `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def check_handler(handler: object, timeout: float | None) -> None:
    """Raises: ConfigurationError for what cannot be called, and for a plain function with a time-out: a thread cannot be ended."""
    if not callable(handler):
        raise ConfigurationError("handler", handler, "a function, or an async function, of one record")
    if timeout is not None and not is_coroutine_function(handler):
        raise ConfigurationError(
            "timeout",
            timeout,
            "None for a plain function, or an async function",
            reason="a thread cannot be ended from outside",
        )


class Handler:
    """Owns the threads of a plain function. `call` is a coroutine function of one record, or of a list of them."""

    def __init__(self, handler: Callable[[Any], Any], threads: int) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self.call: Callable[[Any], Coroutine[Any, Any, Any]] = handler
        if not is_coroutine_function(handler):
            self._threads = threads_pool = ThreadPoolExecutor(threads, "recordpublisher-map")

            async def call_in_thread(records: Any) -> Any:
                return await asyncio.get_running_loop().run_in_executor(threads_pool, handler, records)

            self.call = call_in_thread

    def close(self) -> None:
        """Take no more calls. A call that runs goes on until it returns; nobody waits for it."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
