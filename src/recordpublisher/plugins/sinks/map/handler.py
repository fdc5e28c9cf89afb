"""Calls the handler that the user gave to a `MapSink`, with records or with their values."""

import asyncio
import contextlib
import inspect
import logging
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import Any

from recordpublisher.consumer.typed_values import type_name, underlying_type
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.clock import Clock, ObservedTimeouts
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.user_code import UserFunction, describe_error

from .key_order import UnhandledRecord

log = logging.getLogger("recordpublisher.plugins.sinks.map")
VALID = "a function, or an async function, of one record or its value"
LAMBDA_MARK = "_recordpublisher_lambda"
"""An attribute of the function that `rp.lambda_handler` returns. That function takes events, so it is not a handler."""
_value = attrgetter("value")


class Handler:
    """Calls one function of the user: an async function with a timeout, or a plain function in threads.

    A call that is cancelled counts as a failure, unless the sink is closed.

    - `threads`: number of threads that may call a plain function.
    - `timeout`: how long an async function may run (seconds); None for no limit.
    """

    def __init__(
        self, function: Callable[[Any], Any], threads: int, timeout: float | None, clock: Clock, batch_size: int = 1
    ) -> None:
        if getattr(function, LAMBDA_MARK, None) is True:  # `is True`, because a mock has every attribute
            reason = "rp.lambda_handler returned it, and it takes events"
            valid = "the function that was given to rp.lambda_handler"
            raise ConfigurationError("handler", function, valid, reason=reason)
        self._value_type = value_type_of(function, batch_size)
        self._threads = ThreadPoolExecutor(threads, "recordpublisher-map")  # starts threads as they are needed
        self._function = UserFunction("handler", function, VALID, self._threads, arguments=1)
        if timeout is not None and not self._function.is_async:
            reason = "a plain function runs in a thread, which cannot be ended"
            raise ConfigurationError.needs("timeout", "an async function", reason=reason)
        self._name = name_of_function(function)
        self._timeout = timeout
        self._timeouts = None if timeout is None else ObservedTimeouts(clock, timeout)
        self._is_closed = False
        self._hint = ""
        """A sentence for a warning that says what the function receives, if it receives records and may expect their values."""

    def check(self, context: SinkContext) -> str:
        """Return a sentence that says what the function receives.

        Raises: ConfigurationError if the function takes values of another type than the deserializer makes.
        """
        for stream, made in context.value_types.items():
            self.check_type(made, stream)
        return self.check_type(context.value_type)

    def check_type(self, made: Any, stream: str = "") -> str:
        """Return a sentence that says what the function receives. `made`: the type that the deserializer makes; None if not known.

        `stream`: the stream of these values, if the job has a deserializer for each stream. Raises: ConfigurationError as `check`.
        """
        taken = self._value_type
        if made is not None and taken is not None and not may_fit(made, taken):
            reason = f"the deserializer{f' of the stream {stream}' if stream else ''} makes {type_name(made)}"
            is_own = isinstance(taken, type) and taken.__module__ != "builtins"
            in_a_file = f" (in a file: flink.deserializer = {taken.__module__}:{taken.__qualname__})" if is_own else ""
            valid = f"deserializer={type_name(taken)}{in_a_file}, or a function of a Record or of {type_name(made)}"
            if _list_in(taken) is not None:
                valid += "; a handler of lists of values needs a batch_size of more than 1 (flink.sink.map.batch.size)"
            raise ConfigurationError("handler", f"a function that takes {type_name(taken)}", valid, reason=reason)
        sentence = f"{self._name} gets {'a Record' if taken is None else type_name(taken)}"
        self._hint = sentence if taken is None and made is not bytes else ""
        return sentence

    async def call(self, records: Any) -> Any:
        """Call the function with a record or a list of records, or with their values if it takes values.

        Raises: any error of the function; TimeoutError after the timeout; SinkError if the function cancelled itself; CancelledError
        if the sink was closed.
        """
        argument = records if self._value_type is None else _values(records)
        try:
            if self._timeouts is None:
                return await self._function(argument)
            return await self._call_with_timeout(argument, self._timeouts)
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise
            raise SinkError(
                "the handler has cancelled its own task, which counts as a failure; let it raise an error instead"
            ) from error
        except (AttributeError, TypeError) as error:
            if self._hint and "'Record' object" in describe_error(error):
                log.warning("%s: annotate the parameter (order: Order), or use record.value", self._hint)
                self._hint = ""
            raise
        finally:
            if isinstance(records, list) and not self._is_closed and is_current_task_cancelled():
                # The handler has cancelled its task, but asyncio has not delivered the cancellation yet. It must arrive before the same
                # task handles the halves of the list, because otherwise the first half would fail.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)

    async def _call_with_timeout(self, argument: Any, timeouts: ObservedTimeouts) -> Any:
        try:
            async with asyncio.timeout(None) as timeout:
                timeouts.begin(timeout)
                try:
                    return await self._function(argument)
                finally:
                    timeouts.end(timeout)
        except TimeoutError as error:
            if error.args:  # The function raised this one itself, since those of asyncio.timeout have no arguments.
                raise
            raise TimeoutError(f"no result within {self._timeout:g} s") from error

    def lists_of(self, items: list[UnhandledRecord]) -> Iterable[list[UnhandledRecord]]:
        """Return the lists of records that the function gets: one list, which may have records of several streams."""
        return [items]

    def name_of(self, stream: str) -> str:
        """Return the name of the function, which handles every stream."""
        return self._name

    def runs_in_threads(self, stream: str) -> bool:
        """Return whether a call runs in a thread, so that a cancellation does not end it."""
        return not self._function.is_async

    def close(self) -> None:
        """Accept no more calls. A call that runs in a thread continues until it returns, and nothing waits for it."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


class StreamHandlers:
    """Calls the handler of each record's stream."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    def check(self, context: SinkContext) -> str:
        """Return a sentence that says what each function receives.

        Raises: ConfigurationError if a stream has no handler, and the errors of `Handler.check`.
        """
        made, unknown = context.value_types, context.value_type
        sentences = ", ".join(
            handler.check_type(made.get(stream, unknown), stream if stream in made else "")
            for stream, handler in self._handlers.items()
        )
        if missing := sorted(set(context.streams) - self._handlers.keys()):
            given = f"there is one for {few_of([*self._handlers])}" if self._handlers else "the mapping is empty"
            valid = f"a function for each stream, including {few_of(missing)}"
            raise ConfigurationError("handler", valid=valid, statement="lacks a stream", reason=given)
        if context.streams and (unread := sorted(self._handlers.keys() - set(context.streams))):
            log.warning("the job does not read %s now, so the handler for it is not called", few_of(unread))
        return sentences

    async def call(self, records: Any) -> Any:
        """Call the handler of the stream of a record, or of a list of records of one stream.

        Raises: SinkError if the stream was added to the job and has no handler, and the errors of `Handler.call`.
        """
        stream = (records[0] if isinstance(records, list) else records).stream
        handler = self._handlers.get(stream)
        if handler is None:
            raise SinkError(f"there is no handler for the stream {stream}")
        return await handler.call(records)

    def lists_of(self, items: list[UnhandledRecord]) -> Iterable[list[UnhandledRecord]]:
        """Return a list of records for each stream, because each has a function of its own."""
        of_streams: dict[str, list[UnhandledRecord]] = {}
        for item in items:
            of_streams.setdefault(item.batch.records.stream, []).append(item)
        return of_streams.values()

    def name_of(self, stream: str) -> str:
        """Return the name of the function for a stream, or "" if there is none."""
        handler = self._handlers.get(stream)
        return "" if handler is None else handler.name_of(stream)

    def runs_in_threads(self, stream: str) -> bool:
        """Return whether a call of the function for a stream runs in a thread."""
        handler = self._handlers.get(stream)
        return handler is not None and handler.runs_in_threads(stream)

    def close(self) -> None:
        """Accept no more calls."""
        for handler in self._handlers.values():
            handler.close()


def make_handler(
    given: Callable[[Any], object] | Mapping[str, Callable[[Any], object]],
    *,
    batch_size: int,
    threads: int,
    timeout: float | None,
    clock: Clock,
) -> Handler | StreamHandlers:
    """Make the handler of a sink from the argument `handler` of `MapSink`.

    Raises: ConfigurationError if `given` cannot be called, or cannot be used with `batch_size` or `timeout`.
    """

    def one(function: Callable[[Any], object]) -> Handler:
        annotation = _first_annotation(function)
        is_of_list = _list_in(annotation) is not None
        if batch_size == 1 and is_of_list and _item_of(annotation) is None:
            valid = "more than 1 for a handler that takes a list (in a file flink.sink.map.batch.size)"
            raise ConfigurationError("batch_size", 1, valid)
        is_open = annotation in (None, Any, object) or isinstance(annotation, typing.TypeVar)
        if batch_size > 1 and not is_of_list and not is_open:
            reason = f"the handler takes one {type_name(annotation)}, and would get a list"
            raise ConfigurationError("batch_size", batch_size, "1, or a handler that takes a list", reason=reason)
        return Handler(function, threads, timeout, clock, batch_size)

    if not isinstance(given, Mapping):
        return one(given)
    return StreamHandlers({stream: one(function) for stream, function in given.items()})


def is_current_task_cancelled(loop: asyncio.AbstractEventLoop | None = None) -> bool:
    """Return whether the current task was cancelled, by a handler or from outside, so that it must end soon.

    `loop`: the running event loop. The call is faster with it.
    """
    task = asyncio.current_task(loop)
    return task is not None and task.cancelling() > 0


# --- What a function takes, by the annotation of its first parameter ---


def value_type_of(function: Callable[..., Any], batch_size: int = 1) -> Any:
    """Return the type of the values that a function takes, or None if it takes records.

    - `def f(order: Order)` takes values of the type `Order`, and so does `def f(orders: list[Order])` if `batch_size` is above 1.
    - A parameter without annotation, or with `Any`, `Record` or `list[Record]`, takes records.

    Raises: ConfigurationError if a name in the annotation is unknown.
    """
    annotation = _first_annotation(function)
    item = _item_of(annotation)
    return annotation if batch_size == 1 and item is not None else item


def name_of_function(function: Callable[..., Any]) -> str:
    """Return the name of a function, or that of the class of another callable object, in at most 100 characters."""
    return f"{getattr(function, '__qualname__', None) or type(function).__name__:.100}"


def may_fit(made: Any, taken: Any) -> bool:
    """Return whether values of the type `made` may fit the type `taken`. Types that are not classes are not compared, and fit."""
    made_classes, taken_classes = _classes_of(made), _classes_of(taken)
    if not made_classes or not taken_classes:
        return True
    # A subclass fits, and so does a base class: a deserializer for the base may return the subclass.
    return any(issubclass(a, b) or issubclass(b, a) for a in made_classes for b in taken_classes)


def _values(records: Any) -> Any:
    return list(map(_value, records)) if isinstance(records, list) else records.value


def _first_annotation(function: Callable[..., Any]) -> Any:
    """Return the annotated type of the first parameter, or None if it has no annotation. Other annotations are not evaluated.

    Raises: ConfigurationError if a name in the annotation cannot be found.
    """
    inner: Any = getattr(function, "func", function)  # the function of a functools.partial
    if not inspect.isroutine(inner):
        inner = getattr(inner, "__call__", None)  # noqa: B004 - the annotations of an object that can be called are on its method
    try:
        inner = inspect.unwrap(inner)
        name = next(iter(inspect.signature(function, **_UNRESOLVED).parameters))
        written = _annotations_of(inner)[name]
    except Exception:  # a function without a parameter, an annotation or a signature
        return None
    scope = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    try:
        return underlying_type(
            typing.get_type_hints(types.SimpleNamespace(__annotations__={name: written}), scope)[name]
        )
    except SyntaxError:  # a text that is not meant as a type
        return None
    except Exception as error:  # an annotation may be any expression, so looking it up may raise any error
        shown = getattr(written, "__forward_arg__", written)
        reason = (
            f"{describe_error(error)}: define or import it outside of `if TYPE_CHECKING:`, at the top of the module"
        )
        valid = "a type that is known at run time"
        raise ConfigurationError(
            "handler", f"a function whose parameter is '{name}: {shown}'", valid, reason=reason
        ) from error


_UNRESOLVED: dict[str, Any] = {}
"""An argument for `inspect.signature` since Python 3.14. Without it, every annotation would be evaluated."""
_annotations_of: Callable[[Any], Mapping[str, Any]] = attrgetter("__annotations__")
if sys.version_info >= (3, 14):
    import annotationlib

    _UNRESOLVED = {"annotation_format": annotationlib.Format.FORWARDREF}
    _annotations_of = partial(annotationlib.get_annotations, format=annotationlib.Format.FORWARDREF)


def _item_of(annotation: Any) -> Any:
    """Return the type of the values that a function with this annotation takes: `Order` for `Order` and for `list[Order]`.

    Return None if the function takes records. It does if there is no annotation, or if the annotation is `Any`, `object`, `Record`, a type
    variable, a list of one of these, or a list without a type.
    """
    of_list = _list_in(annotation)
    item = annotation if of_list is None else next(iter(typing.get_args(of_list)), None)
    is_record = item is None or typing.get_origin(item) is Record or item in (Any, object, Record)
    return None if is_record or isinstance(item, typing.TypeVar) else item


_LISTS = (list, Sequence, MutableSequence, Collection, Iterable)


def _list_in(annotation: Any) -> Any:
    """Return the list type in an annotation, such as `list[Order]` or `Sequence`; None if there is none. The annotation may be a union."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    for each in typing.get_args(annotation) if is_union else [annotation]:
        if (typing.get_origin(each) or each) in _LISTS:
            return each
    return None


def _classes_of(given: Any) -> list[type]:
    """Return the classes of a type or of a union, or [] if one of its members is not a class."""
    classes = [dict if typing.is_typeddict(each) else typing.get_origin(each) or each for each in _members_of(given)]
    # Classes that implement a protocol are not its subclasses, so `issubclass` cannot compare protocols.
    is_known = all(isinstance(each, type) and typing.Protocol not in each.__mro__ for each in classes)
    return classes if is_known else []


def _members_of(given: Any) -> list[Any]:
    """Return the members of a union, or the type itself. Annotated types and aliases are resolved, also around and within the union."""
    given = underlying_type(given)
    if typing.get_origin(given) is typing.Annotated:
        return _members_of(given.__origin__)
    if typing.get_origin(given) in (typing.Union, types.UnionType):
        return [member for each in typing.get_args(given) for member in _members_of(each)]
    return [given]
