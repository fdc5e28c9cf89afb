"""Handler: owns the threads of a plain function, and the time-out of an async one; it runs in the tasks of `handler_tasks.py`."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from recordpublisher.consumer.typed_values import name_of
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.clock import Clock, ObservedTimeouts
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.user_code import UserFunction, describe_error

from .handler_argument import may_be, takes_records_in_a_list, value_type_of, values_of
from .settings import MapSettings

log = logging.getLogger("recordpublisher.plugins.sinks.map")
VALID = "a function, or an async function, of one record or its value"
OF_LAMBDA = "_recordpublisher_lambda"
"""The attribute of what `rp.lambda_handler` returns: a function of events, which is no handler."""


class Handler:
    """Owns the threads of a plain function, and whether the sink is closed: otherwise a call that is cancelled is one that failed."""

    def __init__(self, handler: Callable[[Any], Any], threads: int, timeout: float | None, clock: Clock) -> None:
        """Raises: ConfigurationError for what cannot be called, and for a plain function with a time-out: a thread cannot be ended."""
        if getattr(handler, OF_LAMBDA, None) is True:  # a mock has every attribute
            reason = "it is what rp.lambda_handler returned, and takes events"
            raise ConfigurationError(
                "handler", handler, "the function that was given to rp.lambda_handler", reason=reason
            )
        self._value_type = value_type_of(handler)
        self._threads = ThreadPoolExecutor(threads, "recordpublisher-map")  # it starts threads as they are needed
        self._function = UserFunction("handler", handler, VALID, self._threads, arguments=1)
        if timeout is not None and not self._function.is_async:
            reason = "a thread cannot be ended from outside"
            raise ConfigurationError(
                "timeout", timeout, "None for a plain function, or an async function", reason=reason
            )
        self._name = f"{getattr(handler, '__qualname__', None) or type(handler).__name__:.100}"
        self._timeout = timeout
        self._timeouts = None if timeout is None else ObservedTimeouts(clock, timeout)
        self._is_closed = False
        self._hint = ""

    async def call(self, records: Any) -> Any:
        """Call the function with one record, or with a list of them; or with values, if it takes those.

        Raises: what it raises; TimeoutError; SinkError when it has cancelled itself; CancelledError when the sink is closed.
        """
        argument = records if self._value_type is None else values_of(records)
        try:
            if self._timeouts is None:
                return await self._function(argument)
            return await self._limited(argument, self._timeouts)
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise
            raise SinkError("the handler has cancelled itself") from error
        except (AttributeError, TypeError) as error:
            if self._hint and "'Record' object" in describe_error(error):
                log.warning("%s: annotate the parameter (order: Order), or use record.value", self._hint)
                self._hint = ""
            raise
        finally:
            if isinstance(records, list) and not self._is_closed and is_cancelled():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)  # one that was not delivered yet comes here, and not to a part of the list

    async def _limited(self, argument: Any, timeouts: ObservedTimeouts) -> Any:
        try:
            async with asyncio.timeout(None) as timeout:
                timeouts.begin(timeout)
                try:
                    return await self._function(argument)
                finally:
                    timeouts.end(timeout)
        except TimeoutError as error:
            if error.args:  # one of its own
                raise
            raise TimeoutError(f"no result within {self._timeout:g} s") from error

    def name_of(self, stream: str) -> str:
        """The name of the function."""
        return self._name

    def check(self, context: SinkContext) -> str:
        """What it gets, in words. Raises: ConfigurationError when it takes values of another type than the deserialiser makes."""
        made, taken = context.value_type, self._value_type
        if made is not None and taken is not None and not may_be(made, taken):
            reason = f"the deserializer makes {name_of(made)}"
            is_own = isinstance(taken, type) and taken.__module__ != "builtins"
            in_a_file = f" (in a file: flink.deserializer = {taken.__module__}:{taken.__qualname__})" if is_own else ""
            valid = f"deserializer={name_of(taken)}{in_a_file}, or a function of a Record or of {name_of(made)}"
            raise ConfigurationError("handler", f"a function of {name_of(taken)}", valid, reason=reason)
        words = f"{self._name} gets {'a Record' if taken is None else name_of(taken)}"
        self._hint = words if taken is None and made is not bytes else ""
        return words

    def close(self) -> None:
        """Take no more calls. A call in a thread goes on until it returns; nobody waits for it."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


class StreamHandlers:
    """A handler for the records of each stream, by its name."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    def check(self, context: SinkContext) -> str:
        """What each gets. Raises: ConfigurationError for a stream without a handler, and as `Handler.check`."""
        words = ", ".join(handler.check(context) for handler in self._handlers.values())
        if missing := sorted(set(context.streams) - self._handlers.keys()):
            raise ConfigurationError("handler", sorted(self._handlers), f"a function for each stream, also {missing}")
        return words

    def name_of(self, stream: str) -> str:
        """The name of that of the stream."""
        handler = self._handlers.get(stream)
        return "" if handler is None else handler.name_of(stream)

    async def call(self, record: Record) -> Any:
        """Call that of the record's stream. Raises: as `Handler.call`; SinkError for a stream that came without a handler."""
        handler = self._handlers.get(record.stream)
        if handler is None:
            raise SinkError(f"there is no handler for the stream {record.stream}")
        return await handler.call(record)

    def close(self) -> None:
        """Take no more calls."""
        for handler in self._handlers.values():
            handler.close()


def handlers_of(
    given: Callable[[Any], object] | Mapping[str, Callable[[Any], object]], settings: MapSettings, clock: Clock
) -> Handler | StreamHandlers:
    """The handler, or that of each stream. Raises: ConfigurationError, as `Handler`, and for lists of records with several handlers."""

    def one(handler: Callable[[Any], object]) -> Handler:
        if settings.batch_size == 1 and takes_records_in_a_list(handler):
            valid = "more than 1 for a handler that takes a list (in a file flink.sink.map.batch.size)"
            raise ConfigurationError("batch_size", 1, valid)
        return Handler(handler, settings.concurrency, settings.timeout, clock)

    if not isinstance(given, Mapping):
        return one(given)
    if settings.batch_size > 1:
        reason = "a list may have records of several streams"
        raise ConfigurationError("batch_size", settings.batch_size, "1 with a handler for each stream", reason=reason)
    return StreamHandlers({stream: one(handler) for stream, handler in given.items()})


def is_cancelled(loop: asyncio.AbstractEventLoop | None = None) -> bool:
    """Whether this task was cancelled, by a handler or from outside: it must end soon. `loop`: the running one, where it is known."""
    task = asyncio.current_task(loop)
    return task is not None and task.cancelling() > 0
