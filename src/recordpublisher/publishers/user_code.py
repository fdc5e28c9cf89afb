"""Calls of user code (handlers, callbacks, deserialisers): what is awaitable is awaited, and what nobody would run is refused."""

import asyncio
import contextvars
import inspect
import itertools
import logging
import sysconfig
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import ConfigurationError, causes_of
from .log_fields import about

MAX_REASON = 1_000
"""Characters of an error that go into a message or a log line."""
_OWN_CODE = str(Path(__file__).parents[1])
_PYTHONS_CODE = sysconfig.get_path("stdlib")
_LOGGED = "_recordpublisher_logged"
_NEVER_RUN = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine; also for partial functions and for objects with an async `__call__`."""
    return any(map(inspect.iscoroutinefunction, _callables(function)))


def check_user_function(
    name: str, function: object, valid: str, *, is_plain: bool = False, arguments: int | None = None
) -> None:
    """Raises: ConfigurationError for what cannot be called, also with this number of arguments, for a class and for a generator function;
    with `is_plain` for an async one, too."""
    if not callable(function):
        raise ConfigurationError(name, f"{function!r:.100}", valid)
    made = getattr(function, "func", function)  # of a partial function
    if isinstance(made, type):
        only = f"{made.__name__} is a class; calling it would only make an object"
        raise ConfigurationError(name, function, valid, reason=f"{only}: give {made.__name__}() or one of its methods")
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _callables(function)):
        raise ConfigurationError(
            name, function, valid, reason="it is a generator: calling it would run none of its code"
        )
    if is_plain and is_coroutine_function(function):
        raise ConfigurationError(name, function, valid, reason="it is async, and nobody would await it")
    if arguments is not None and not takes(function, arguments):
        raise ConfigurationError(name, function, valid, reason=f"it cannot be called with {arguments} argument")


def refuse_never_run(results: Sequence[Any]) -> None:
    """Raises: TypeError when a plain function has returned a coroutine or a generator: its code would never run."""
    if not _NEVER_RUN_SET.isdisjoint(map(type, results)):
        result = next(result for result in results if isinstance(result, _NEVER_RUN))
        for each in results:
            if isinstance(each, types.CoroutineType):
                each.close()  # so that Python does not warn, too
        raise TypeError(f"the function returned {_article(result)}, of which no code has run: return the result itself")


_NEVER_RUN_SET = frozenset(_NEVER_RUN)


class ForeignExitError(RuntimeError):
    """Foreign code called `sys.exit`, which would have ended the process as if its work were done."""


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Import or call foreign code, whose SystemExit becomes an error. Raises: ForeignExitError if the code calls `sys.exit`."""
    try:
        yield
    except SystemExit as end:
        reason = 'a module that is imported needs `if __name__ == "__main__":` before it'
        raise ForeignExitError(f"it called sys.exit({end.code!r:.200}); {reason}") from end


class UserFunction:
    """A function of the user. An async one is awaited; a plain one runs in a thread, and what it returns is awaited if it can be, also a
    future of threads or processes."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        valid: str,
        threads: Executor | None = None,
        *,
        arguments: int | None = None,
    ) -> None:
        """`threads`: those of plain functions; None: those of the event loop. Raises: ConfigurationError, as `check_user_function`."""
        check_user_function(name, function, valid, arguments=arguments)
        self.is_async = is_coroutine_function(function)
        self._function = function
        self._threads = threads

    async def __call__(self, *arguments: Any) -> Any:
        """The result. Raises: what the function raises; TypeError for a generator; RuntimeError for what would end the process."""
        try:
            result = await (self._function(*arguments) if self.is_async else self._call_in_thread(arguments))
            return result if result is None else await _settled(result)
        except Exception as error:
            if _can_be_examined(error):
                raise
            raise RuntimeError(f"the function raised {type(error).__name__}, whose attributes cannot be read") from None
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # such as SystemExit: the event loop would end without a word
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # it may be Ctrl-C, which no other thread gets
            raise RuntimeError(f"the function raised {describe_error(error)}") from error

    async def _call_in_thread(self, arguments: tuple[Any, ...]) -> Any:
        # with the context, which has the span and the fields of log lines, as `asyncio.to_thread` does
        context, loop = contextvars.copy_context(), asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, context.run, self._call, arguments)

    def _call(self, arguments: tuple[Any, ...]) -> Any:
        try:
            return self._function(*arguments)
        except StopIteration as error:  # the future of a thread cannot hold it: the caller would wait for ever
            raise RuntimeError(f"the function raised {describe_error(error)}") from error


async def _settled(result: Any) -> Any:
    """What a function has returned, awaited if it can be."""
    if inspect.isawaitable(result):
        return await result
    if isinstance(result, Future):  # of a pool of the user's own
        return await asyncio.wrap_future(result)
    if isinstance(result, _NEVER_RUN):
        refuse_never_run([result])
    return result


def describe_error(error: BaseException) -> str:
    """Kind and message of an error, also when its `__str__` fails or has no end."""
    try:
        message = str(error)
    except Exception as failure:
        message = f"(its __str__ raised {type(failure).__name__})"
    if len(message) > MAX_REASON:
        message = f"{message[:MAX_REASON]}... ({len(message)} characters)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class AsyncPort:
    """A port whose async methods are async in each class that implements it: `def write` would fail later, with a message about None."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises: TypeError for a method that is not async."""
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            is_plain = isinstance(method, types.FunctionType) and not is_coroutine_function(inspect.unwrap(method))
            if is_plain and any(
                is_coroutine_function(vars(base)[name]) for base in cls.__mro__[1:] if name in vars(base)
            ):
                raise TypeError(f"{cls.__name__}.{name} must be async: write `async def {name}`, without `yield`")


def log_user_error(log: logging.Logger, error: BaseException, message: str, shard: str, sequence_number: str) -> None:
    """Log what user code raised, with its traceback. `shard`: `Shard.key`; `sequence_number`: of the record, or of the first one."""
    log.error("%s", message, exc_info=for_log(error), extra=about(shard, sequence_number, error))
    object.__setattr__(error, _LOGGED, True)  # one of the user's may forbid to change it, as a frozen dataclass does


def was_logged(error: BaseException) -> bool:
    """Whether `log_user_error` has logged it, or what led to it."""
    return any(hasattr(each, _LOGGED) for each in causes_of(error))


def for_log(error: BaseException) -> BaseException | None:
    """The error as `exc_info` of a log line; None if only this library's code has a part in it: its message says all.

    In place of one whose message has no end, or that cannot be shown, comes another, with its traceback.
    """
    frames = itertools.chain.from_iterable(traceback.walk_tb(each.__traceback__) for each in causes_of(error))
    if not any(_is_foreign(frame.f_code.co_filename) for frame, _ in frames):
        return None
    described = describe_error(error)
    if len(described) <= MAX_REASON and _can_be_shown(error):
        return error
    return RuntimeError(described).with_traceback(error.__traceback__)


def is_raised_in_user_code(error: BaseException, *, or_installed: bool = False) -> bool:
    """Whether code of the user has raised it, or passed it on. Installed code counts with `or_installed` only."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    foreign = (file for file in files if _is_foreign(file) and not file.startswith("<frozen"))
    return any(or_installed or "site-packages" not in file for file in foreign)


def cause_in_user_code(error: BaseException) -> BaseException | None:
    """The first cause of the error that code of the user has raised; None: its code has no part."""
    return next(filter(is_raised_in_user_code, causes_of(error.__cause__)), None)


def add_note(error: BaseException, note: str) -> None:
    """Add a note, unless the error forbids to change it."""
    with suppress(Exception):
        error.add_note(note)


def _can_be_examined(error: BaseException) -> bool:
    """Whether its attributes can be read: a class of the user may raise for any of them."""
    try:
        return all(hasattr(each, "__traceback__") for each in causes_of(error))
    except Exception:
        return False


def _can_be_shown(error: BaseException) -> bool:
    """Whether `logging` can: where that fails, it raises."""
    try:
        traceback.TracebackException.from_exception(error, lookup_lines=False)
    except Exception:
        return False
    return True


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Whether it can be called so; True where that is not known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def _is_foreign(file: str) -> bool:
    return not file.startswith((_OWN_CODE, _PYTHONS_CODE)) or "site-packages" in file.removeprefix(_OWN_CODE)


def _callables(function: Any) -> tuple[Any, Any]:
    return function, getattr(function, "__call__", None)  # noqa: B004 - of an object


def _article(result: object) -> str:
    kinds = {types.CoroutineType: "a coroutine", types.GeneratorType: "a generator"}
    return kinds.get(type(result), "an async generator")
