"""Calls of the handler in the worker's own task, with or without a time-out: neither a task nor a timer for each record."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from recordpublisher.publishers.errors import SinkError

from .deadlines import Deadlines

Call = Callable[[Any], Awaitable[Any]]
"""Calls the handler with one record, or with a list of them."""
Handle = Callable[[Any], Coroutine[Any, Any, Any]]
_CANCELLED_ITSELF = "the handler has cancelled itself"


def unlimited(handle: Handle, on_suspended: Callable[[], None]) -> Call:
    """Calls without a time-out; `on_suspended` is called when the handler suspends for the first time.

    A handler that cancels itself has failed; CancelledError means that the worker is cancelled.
    """

    @types.coroutine
    def call_unlimited(records: Any) -> Generator[Any, Any, Any]:
        handling = handle(records)
        try:
            awaited = handling.send(None)
            on_suspended()
            return (yield from _resumed(handling, awaited))
        except StopIteration as finished:
            return finished.value
        except asyncio.CancelledError as error:
            if _this_task().cancelling():
                raise
            raise SinkError(_CANCELLED_ITSELF) from error

    return call_unlimited


def limited(handle: Handle, on_suspended: Callable[[], None], deadlines: Deadlines, seconds: float) -> Call:
    """Calls that raise TimeoutError after so many seconds; otherwise as `unlimited`. One that never suspends costs no deadline."""

    @types.coroutine
    def call_limited(records: Any) -> Generator[Any, Any, Any]:
        handling = handle(records)
        try:
            awaited = handling.send(None)
        except StopIteration as finished:
            return finished.value
        except asyncio.CancelledError as error:
            if _this_task().cancelling():
                raise
            raise SinkError(_CANCELLED_ITSELF) from error
        worker = _this_task()
        deadlines.start(worker)
        on_suspended()
        try:
            return (yield from _resumed(handling, awaited))
        except asyncio.CancelledError as error:
            is_expired = deadlines.finish(worker)
            if worker.cancelling():
                raise
            if is_expired:
                raise TimeoutError(f"no result within {seconds:g} s") from None
            raise SinkError(_CANCELLED_ITSELF) from error
        finally:
            deadlines.finish(worker)

    return call_limited


def _resumed(handling: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine that has suspended with `awaited`."""
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                handling.close()
                raise
            except BaseException as error:
                awaited = handling.throw(error)
            else:
                awaited = handling.send(sent)
    except StopIteration as finished:
        return finished.value


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise AssertionError("handlers are called by workers, which are tasks")
    return task
