"""Calls of the handler in the worker's own task, with or without a time-out: neither a task nor a timer for each record."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from recordpublisher.publishers.errors import SinkError

from .deadlines import Deadlines

Call = Callable[[Any], Coroutine[Any, Any, Any]]
"""A coroutine function of one record, or of a list of them."""


@types.coroutine
def await_and_notify(coroutine: Coroutine[Any, Any, Any], on_suspended: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Await `coroutine`; before it suspends for the first time, call `on_suspended`."""
    try:
        awaited = coroutine.send(None)
        on_suspended()
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                awaited = coroutine.throw(error)
            else:
                awaited = coroutine.send(sent)
    except StopIteration as finished:
        return finished.value


def unlimited(call: Call, on_suspended: Callable[[], None]) -> Call:
    """Calls without a time-out. A handler that cancels itself has failed; CancelledError means that the worker is cancelled."""

    async def call_unlimited(records: Any) -> Any:
        try:
            return await await_and_notify(call(records), on_suspended)
        except asyncio.CancelledError as error:
            if _this_task().cancelling():
                raise
            raise SinkError("the handler has cancelled itself") from error

    return call_unlimited


def limited(call: Call, on_suspended: Callable[[], None], deadlines: Deadlines, seconds: float) -> Call:
    """Calls that raise TimeoutError after so many seconds; otherwise as `unlimited`."""

    def start_time() -> None:
        deadlines.start(_this_task())
        on_suspended()

    async def call_limited(records: Any) -> Any:
        try:
            return await await_and_notify(call(records), start_time)
        except asyncio.CancelledError as error:
            is_expired = deadlines.finish(_this_task())
            if _this_task().cancelling():
                raise
            if is_expired:
                raise TimeoutError(f"no result within {seconds:g} s") from None
            raise SinkError("the handler has cancelled itself") from error
        finally:
            deadlines.finish(_this_task())

    return call_limited


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise AssertionError("handlers are called by workers, which are tasks")
    return task
