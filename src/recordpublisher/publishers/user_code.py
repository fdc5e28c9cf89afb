"""Calls user code (handlers, callbacks, deserializers): awaits what must be awaited, refuses code that would never run, and logs its
errors.

It also names the method of a plugin that fails or does not return, and continues without tasks that do not end when they are cancelled.
"""

import asyncio
import contextvars
import gc
import inspect
import itertools
import logging
import opcode
import sys
import sysconfig
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self, TextIO

from .errors import ConfigurationError, PluginError, causes_of
from .log_fields import log_extra
from .safe_text import counted, notes_of, repr_of, text_of


class UserFunction:
    """Calls a function of the user: an async function is awaited, and a plain one runs in a thread.

    If a plain function returns an awaitable or a `concurrent.futures.Future`, the result of that is awaited.

    - `threads`: runs plain functions. If it is None, the event loop's threads do.

    Raises: ConfigurationError if `check_user_function` refuses the function.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        valid: str,
        threads: Executor | None = None,
        *,
        arguments: int | None = None,
    ) -> None:
        check_user_function(name, function, valid, arguments=arguments)
        self.is_async = is_coroutine_function(function)
        self._function = function
        self._threads = threads

    async def __call__(self, *arguments: Any) -> Any:
        """Return the function's result.

        Raises: the errors of the function; TypeError if it returns a generator. An exception that would end the process, such as
        SystemExit, becomes a RuntimeError.
        """
        try:
            result = await (self._function(*arguments) if self.is_async else self._call_in_thread(arguments))
            return result if result is None else await _await_result(result)
        except Exception as error:
            if _can_be_examined(error):
                raise
            raise RuntimeError(f"the function raised {type(error).__name__}, whose attributes cannot be read") from None
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # For example SystemExit, which would end the event loop without a message.
            if _is_closed(error):
                raise
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # This may be Ctrl-C, which no other thread receives.
            raise RuntimeError(f"the function raised {describe_error(error)}") from error

    async def _call_in_thread(self, arguments: tuple[Any, ...]) -> Any:
        # The context has the span and the fields of log lines. `asyncio.to_thread` copies it in the same way.
        context, loop = contextvars.copy_context(), asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, context.run, self._call, arguments)

    def _call(self, arguments: tuple[Any, ...]) -> Any:
        try:
            return self._function(*arguments)
        except (StopIteration, GeneratorExit) as error:
            # A thread's future cannot hold StopIteration, so the caller would wait for ever. GeneratorExit would close the coroutine that
            # waits for the future.
            raise RuntimeError(f"the function raised {describe_error(error)}") from error


async def _await_result(result: Any) -> Any:
    """Return a function's result, awaited if it is awaitable. Raises: TypeError if it is a generator, because its code has not run."""
    if inspect.isawaitable(result):
        return await result
    if isinstance(result, Future):  # The future comes from a pool of the user.
        return await asyncio.wrap_future(result)
    if isinstance(result, _NEVER_RUN):
        refuse_unrun_results([result])
    return result


class ForeignExitError(RuntimeError):
    """User code or a plugin called `sys.exit`, or raised another exception that ends a process or task without a message."""


@contextmanager
def exits_as_errors(*, is_import: bool = True) -> Iterator[None]:
    """Raise a SystemExit or CancelledError of the `with` block as an error. Otherwise it would end the process or task without a message.

    The block imports or calls code of a user or plugin, and awaits nothing, so its CancelledError is not a cancellation of the task.
    KeyboardInterrupt passes, because it may be Ctrl-C.

    - `is_import`: whether the block imports a module. Then the error does not name a function: the caller's message names the module.

    Raises: ForeignExitError if the code calls `sys.exit`, or raises another exception that is not an Exception.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as end:
        called = f"called sys.exit({repr_of(end.code, 200)})"
        if is_import:
            reason = 'a module that is imported needs `if __name__ == "__main__":` before it'
            raise ForeignExitError(f"it {called}; {reason}") from end
        raise ForeignExitError(_words_of_exit(end)) from end
    except BaseException as end:
        raise ForeignExitError(
            f"it raised {describe_error(end)}, which is not an Exception; raise another error"
        ) from end


def _words_of_exit(end: SystemExit) -> str:
    frame, line = [*traceback.walk_tb(end.__traceback__)][-1]
    place = f"`{frame.f_code.co_qualname}` ({frame.f_code.co_filename}, line {line})"
    called = f"called sys.exit({repr_of(end.code, 200)})"
    return f"{place} {called}, which would end the process; raise an exception instead"


# --- checks of a function -----------------------------------------------------------------------------------------------------------

_NEVER_RUN = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
_NEVER_RUN_SET = frozenset(_NEVER_RUN)


def check_user_function(
    name: str, function: object, valid: str, *, is_plain: bool = False, arguments: int | None = None
) -> None:
    """Check that the function that a user has given for a setting can be called, and that its result can be used.

    - `name`, `valid`: the setting's name and its valid values, for the message.
    - `is_plain`: whether the function must not be async.
    - `arguments`: the number of arguments with which it will be called, or None if that is not checked.

    Raises: ConfigurationError if the function cannot be called in this way, or if it is a class or a generator function.
    """
    if not callable(function):
        raise ConfigurationError(name, function if isinstance(function, str) else repr_of(function), valid)
    made = getattr(function, "func", function)  # A partial function has its function there.
    if isinstance(made, type):
        only = f"{made.__name__} is a class; calling it would only make an object"
        raise ConfigurationError(name, function, valid, reason=f"{only}: give {made.__name__}() or one of its methods")
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _callables(function)):
        raise ConfigurationError(
            name, function, valid, reason="it is a generator: calling it would run none of its code"
        )
    if is_plain and is_coroutine_function(function):
        raise ConfigurationError(name, function, valid, reason="it is async, but its result would not be awaited")
    if arguments is not None and not can_take(function, arguments):
        raise ConfigurationError(
            name, function, valid, reason=f"it cannot be called with {counted(arguments, 'argument')}"
        )


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` returns a coroutine. It may also be a partial function, or an object with an async `__call__`."""
    return any(map(inspect.iscoroutinefunction, _callables(function)))


def can_take(function: Callable[..., Any], arguments: int) -> bool:
    """Return whether `function` can be called with this number of arguments. If that is not known, return True."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def _callables(function: Any) -> tuple[Any, Any]:
    return function, getattr(function, "__call__", None)  # noqa: B004 - of an object


def refuse_unrun_results(results: Sequence[Any]) -> None:
    """Check that the results of a plain function are values.

    Raises: TypeError if one is a coroutine or a generator. Its code would never run.
    """
    if not _NEVER_RUN_SET.isdisjoint(map(type, results)):
        result = next(result for result in results if isinstance(result, _NEVER_RUN))
        for each in results:
            if isinstance(each, types.CoroutineType):
                each.close()  # Closed, because Python would also warn of a coroutine that never ran.
        raise TypeError(
            f"the function returned {_article(result)}, and none of its code has run: return the result itself"
        )


def _article(result: object) -> str:
    kinds = {types.CoroutineType: "a coroutine", types.GeneratorType: "a generator"}
    return kinds.get(type(result), "an async generator")


# --- errors of user code ------------------------------------------------------------------------------------------------------------

MAX_REASON = 1_000
"""The most characters of an error's message that are shown in a message or a log line."""
_OWN_CODE = str(Path(__file__).parents[1])
_PYTHONS_CODE = sysconfig.get_path("stdlib")
_LOGGED = "_recordpublisher_logged"


def describe_error(error: BaseException) -> str:
    """Return the class and message of an error, even if its `__str__` fails. A very long message is cut."""
    message = text_of(error)
    if len(message) > MAX_REASON:
        message = f"{message[:MAX_REASON]}... ({len(message)} characters)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def log_user_error(
    log: logging.Logger, error: BaseException, message: str, shard: str, sequence_number: str, *, is_told: bool = False
) -> None:
    """Log an error of user code, with its traceback.

    - `shard`: the `Shard.key` of the record.
    - `sequence_number`: the sequence number of the record, or of the first one.
    - `is_told`: whether an earlier log line already has the traceback. Then this line has none.
    """
    trace = None if is_told else exc_info_for_log(error)
    log.error("%s", message, exc_info=trace, extra=log_extra(shard, sequence_number, error))
    # A user's error class may forbid changes, as a frozen dataclass does, so its own `__setattr__` is not called.
    object.__setattr__(error, _LOGGED, True)


def was_logged(error: BaseException) -> bool:
    """Return whether `log_user_error` has logged the error, or one of its causes."""
    with suppress(Exception):  # A class of the user may raise for any attribute.
        return any(hasattr(each, _LOGGED) for each in causes_of(error))
    return False


def exc_info_for_log(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, types.TracebackType | None] | None:
    """Return the `exc_info` of a log line: the error, and its traceback from the first line of user code on.

    Return None if no code of a user is involved: then the message is enough. If the error cannot be shown, or its message is too long, the
    result has another error with the same traceback.
    """
    # The message is enough if no code of the user is involved.
    frames = itertools.chain.from_iterable(traceback.walk_tb(each.__traceback__) for each in causes_of(error))
    if not any(_is_foreign(frame.f_code.co_filename) for frame, _ in frames):
        return None
    trace, described = error.__traceback__, describe_error(error)
    # The library's own lines come first, and are the same for each error of a handler.
    while trace is not None and not _is_foreign(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    trace = trace or error.__traceback__  # The user's code is in a cause, which is shown with a traceback of its own.
    if len(described) > MAX_REASON or not _can_be_shown(error):
        error = RuntimeError(described)
    return type(error), error, trace


def is_raised_in_user_code(error: BaseException, *, or_installed: bool = False) -> bool:
    """Return whether code of the user has raised the error or passed it on. `or_installed`: code of installed packages counts as well."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
        # Python replaces an error of these classes that leaves a coroutine, without the coroutine's frame.
        error = error.__cause__
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    foreign = (file for file in files if _is_foreign(file) and not file.startswith("<frozen"))
    return any(or_installed or "site-packages" not in file for file in foreign)


def cause_in_user_code(error: BaseException) -> BaseException | None:
    """Return the first error in the chain of causes that user code has raised, or None if there is none."""
    return next(filter(is_raised_in_user_code, causes_of(error.__cause__)), None)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error. Do nothing if the error has this note already, or if its class forbids changes."""
    if note not in notes_of(error):
        with suppress(Exception):
            error.add_note(note)


def _is_foreign(file: str) -> bool:
    return not file.startswith((_OWN_CODE, _PYTHONS_CODE)) or "site-packages" in file.removeprefix(_OWN_CODE)


def _can_be_examined(error: BaseException) -> bool:
    """Return whether the error's attributes can be read. A user's error class may raise for any of them."""
    try:
        return all(hasattr(each, "__traceback__") for each in causes_of(error))
    except Exception:
        return False


def _can_be_shown(error: BaseException) -> bool:
    """Return whether `logging` can show the error. For some errors of users `logging` itself raises."""
    try:
        traceback.TracebackException.from_exception(error, lookup_lines=False)
    except Exception:
        return False
    return True


def raised_line(error: BaseException) -> str:
    """Return the file, line and function that raised an error: in the user's code if possible, else in an installed package, else in this
    library.
    """
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)][::-1]
    foreign = [
        each for each in frames if _is_foreign(each[0].co_filename) and not each[0].co_filename.startswith("<frozen")
    ]
    own = [each for each in foreign if "site-packages" not in each[0].co_filename]
    for code, line in [*own, *foreign, *frames]:
        return f"{code.co_filename}:{line} ({code.co_qualname})"
    return "an unknown line"


def waiting_line(*tasks: asyncio.Task[Any]) -> str:
    """Return the file and line at which a task waits: in the user's code if possible, else in this library.

    If there are several tasks, one that waits in the user's code is preferred.
    """
    lines = [_innermost(_waiting_frames(task)) for task in tasks]
    return next((users for users, _, _ in lines if users), lines[0][1])


def line_in_user_code(task: asyncio.Task[Any], below: types.FrameType | None = None) -> str:
    """Return the file and line of the user's code at which a task waits. Return "" if that code waits in a call of this library.

    - `below`: a frame, or None. Only calls that were made from this frame are considered.
    """
    frames: list[types.FrameType] = []
    for frame in _waiting_frames(task):
        frames = [] if frame is below else [*frames, frame]
    users, last, foreign = _innermost(frames)
    return users if foreign == last else ""


def running_line(frame: types.FrameType | None) -> str:
    """Return the file and line that a thread is running: in the user's code if possible, else in this library.

    `frame`: the innermost frame of the thread.
    """
    frames = []
    # The search ends at the event loop, which has called everything else.
    while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
        frames.append(frame)
        frame = frame.f_back
    users, last, _ = _innermost(reversed(frames))
    return users or last


def _waiting_frames(task: asyncio.Task[Any]) -> Iterator[types.FrameType]:
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            yield frame
        following = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
        if following is None and type(coroutine).__name__.startswith("async_generator_"):
            # A step of an async generator has no attribute that refers to its generator, so the generator is found through the garbage
            # collector.
            following = next((each for each in gc.get_referents(coroutine) if inspect.isasyncgen(each)), None)
        coroutine = following


def _innermost(frames: Iterable[types.FrameType]) -> tuple[str, str, str]:
    """Return three innermost lines, each "" if there is none:

    1. of the user's code, or else of an installed package,
    2. of all code except Python's,
    3. of all code except Python's and this library's.
    """
    last, foreign, users = "an unknown line", "", ""
    for frame in frames:
        file = frame.f_code.co_filename
        if not _is_pythons(file):
            last = f"{file}:{frame.f_lineno} ({frame.f_code.co_name})"
            foreign = last if _is_foreign(file) else foreign
            users = foreign if foreign == last and "site-packages" not in file else users
    return users or foreign, last, foreign


def _is_pythons(file: str) -> bool:
    return file.startswith(_PYTHONS_CODE) and "site-packages" not in file


# --- calls of a plugin's methods ----------------------------------------------------------------------------------------------------

log = logging.getLogger("recordpublisher.run")
SLOW_SECONDS = 10.0
"""A call of a plugin that takes longer than this is logged, with the line at which it waits (seconds)."""
LONGEST_PAUSE_SECONDS = 600.0
"""The longest time between two log lines about one slow call (seconds). Up to this limit the time doubles with each line."""


class PluginCall:
    """A context manager that watches a call of a plugin's method: `with PluginCall(factory, "discover", "orders"): await
    factory.discover(...)`.

    - A call that does not return is logged after `SLOW_SECONDS`, with the line of the plugin's code at which it waits. It is logged again
      after pauses that double. Nothing is logged while it waits in code of this library, because that code logs its waits.
    - An error that the plugin's code has raised or passed on gets a note with the name of the method.
    - An exception that would end the task without a log line becomes a PluginError (`as_plugin_error`).

    It may be used again for the next call of the method, in the same event loop (`with_subject`).

    - `subject`: the stream or the shard of the call.
    - `note`: another note for errors; "" for no note.
    - `is_watched`: whether a call that does not return is logged. False for calls that may be slow, and outside an event loop.
    - `slow_after`: after how long such a call is logged (seconds).
    """

    __slots__ = (
        "_due", "_frame", "_is_watched", "_loop", "_note", "_slow_after", "_task", "_unawaited", "_waited", "method", "plugin", "subject"
    )  # fmt: skip

    def __init__(
        self,
        plugin: object,
        method: str,
        subject: str = "",
        *,
        note: str | None = None,
        is_watched: bool = True,
        slow_after: float = SLOW_SECONDS,
    ) -> None:
        self.plugin, self.method, self.subject, self._note = plugin, method, subject, note
        self._is_watched, self._waited, self._slow_after = is_watched, slow_after, slow_after
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._frame: types.FrameType | None = None
        self._unawaited = ""

    def with_subject(self, subject: str) -> Self:
        """Change the subject, and return this object, for the next call of the method."""
        self.subject = subject
        return self

    def __enter__(self) -> None:
        if self._is_watched:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._task, self._frame = asyncio.current_task(self._loop), sys._getframe(1)
            self._waited, self._due = self._slow_after, self._loop.time() + self._slow_after
            _RUNNING[self] = None
            timer = _TIMERS.get(self._loop)
            if timer is None or timer.when() > self._due:
                _watch(self._loop, self._due)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if self._is_watched:
            del _RUNNING[self]
            self._task = self._frame = None
        if self._unawaited:
            words, self._unawaited = self._unawaited, ""
            if error is None:
                raise PluginError(
                    f"{self.name} has not awaited a call, so its work was not done: {words}; write `await`"
                )
        if error is None:
            return
        if (replaced := as_plugin_error(error, self.name)) is not None:
            raise replaced from error
        is_named = self._note == "" or not isinstance(error, Exception)
        # A TypeError of the call itself has no frame of the plugin: the method has other parameters.
        is_of_call = isinstance(error, TypeError) and trace is not None and trace.tb_next is None
        if not is_named and (is_of_call or is_raised_in_user_code(error, or_installed=True)):
            add_note(error, self._note or f"{self.name} failed")

    @property
    def name(self) -> str:
        """The name of the method, with the plugin's class and the subject."""
        return f"`{type(self.plugin).__name__}.{self.method}`" + (f" for {self.subject}" if self.subject else "")

    def describe(self) -> str:
        """Return a sentence that says for how long the call has not returned, and at which line of the plugin's code it waits.

        Return "" if the call waits in other code.
        """
        line = "" if self._task is None else line_in_user_code(self._task, self._frame)
        return f"{self.name} has not returned for {self._waited:.0f} s: it waits at {line}" if line else ""

    def is_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether the call runs in this event loop."""
        return self._loop is loop

    @property
    def is_slow(self) -> bool:
        """Whether a check has found that the call takes longer than `slow_after`."""
        return self._waited > self._slow_after

    def look(self, now: float) -> tuple[float, str]:
        """Return when the call must be checked next (event-loop time), and the text of a log line about it. The text is "" if none is due
        now.
        """
        if now < self._due:
            return self._due, ""
        words, pause = self.describe(), min(self._waited, LONGEST_PAUSE_SECONDS)
        self._waited += pause
        self._due += pause
        return self._due, words

    def note_unawaited(self, warning: str, file: str, line: int) -> None:
        """Note that a coroutine was dropped at this line without being awaited. If the line is in the plugin's code, the call fails at its
        end.

        `warning`: Python's message about it.
        """
        modules = [sys.modules.get(cls.__module__) for cls in type(self.plugin).__mro__ if _is_foreign(_file_of(cls))]
        if any(_is_in(module, file) for module in modules):
            self._unawaited = self._unawaited or f"{warning} ({file}:{line})"

    def runs_in(self, task: asyncio.Task[Any]) -> bool:
        """Return whether this task makes the call."""
        return self._task is task


_RUNNING: dict[PluginCall, None] = {}
"""The watched calls of all event loops, the oldest first."""
_TIMERS: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
"""For each event loop, the timer of the next check of its calls. All calls share it, because most calls are faster than a timer."""


def _watch(loop: asyncio.AbstractEventLoop, due: float) -> None:
    for closed in [each for each in _TIMERS if each.is_closed()]:
        _TIMERS.pop(closed, None)
    if (later := _TIMERS.get(loop)) is not None:
        later.cancel()
    _TIMERS[loop] = loop.call_at(due, _log_slow_calls, loop)


def _log_slow_calls(loop: asyncio.AbstractEventLoop) -> None:
    del _TIMERS[loop]
    dues: list[float] = []
    # Only the oldest call of a method is logged, because a thousand shards may wait for the same method.
    logged: set[tuple[int, str]] = set()
    # Copied, because other threads have calls too.
    for call in list(_RUNNING):
        if not call.is_in(loop):
            continue
        method, was_slow = (id(call.plugin), call.method), call.is_slow
        due, words = call.look(loop.time())
        dues.append(due)
        if words and method not in logged:
            log.warning("%s", words)
        if words or was_slow:
            logged.add(method)
    if dues:
        _watch(loop, min(dues))


def notice_unawaited_calls() -> None:
    """Make a call of a plugin fail if the plugin's code drops a coroutine without awaiting it. A `write` without `await` writes nothing.

    Python only warns of that, and the warning is still shown.
    """
    shown = warnings.showwarning
    if getattr(shown, "notices_unawaited", False):
        return

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category is RuntimeWarning and str(message).endswith("was never awaited"):
            with suppress(RuntimeError):  # There is no event loop in this thread.
                task = asyncio.current_task()
                for call in [each for each in list(_RUNNING) if task is not None and each.runs_in(task)]:
                    call.note_unawaited(str(message), filename, lineno)
        shown(message, category, filename, lineno, file, line)

    show.notices_unawaited = True  # type: ignore[attr-defined]
    warnings.showwarning = show
    # Otherwise Python shows only the first warning of each line, and a job that is started again would continue without a word.
    warnings.filterwarnings("always", "coroutine .* was never awaited", RuntimeWarning, append=True)


def _file_of(cls: type) -> str:
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or _PYTHONS_CODE


def _is_in(module: types.ModuleType | None, file: str) -> bool:
    """Return whether `file` is the file of a module, or is in the folder of its package."""
    found = getattr(module, "__file__", None)
    if found is None or module is None:
        return False
    return file == found or ("." in module.__name__ and Path(found).parent in Path(file).parents)


def slow_calls(plugin: object) -> list[str]:
    """Return a sentence for each method of a plugin of which a call has not returned for `SLOW_SECONDS`. It is about the oldest call."""
    oldest = {call.method: call for call in reversed(list(_RUNNING)) if call.plugin is plugin and call.is_slow}
    return [words for call in oldest.values() if (words := call.describe())]


def as_plugin_error(error: BaseException, name: str) -> PluginError | None:
    """Return the error to raise instead of an exception that would end a task without a message. Return None if the exception may pass:

    - an Exception,
    - a CancelledError, if the running task was cancelled,
    - a GeneratorExit, if Python closes the coroutine of the call,
    - a KeyboardInterrupt, which is logged here.

    SystemExit may not pass: it would end the event loop at once, with everything that is still open.

    `name`: what has raised the exception, for the message.
    """
    if isinstance(error, asyncio.CancelledError):
        if is_being_cancelled():
            return None
        return PluginError(f"{name} raised CancelledError, but nothing has cancelled its task: raise another error")
    if isinstance(error, Exception) or _is_closed(error):
        return None
    if isinstance(error, SystemExit):
        return PluginError(_words_of_exit(error))
    frame, line = [*traceback.walk_tb(error.__traceback__)][-1]
    words = f"{name} raised {describe_error(error)} at {frame.f_code.co_filename}:{line} ({frame.f_code.co_name})"
    if isinstance(error, KeyboardInterrupt):  # This may be Ctrl-C, so it must pass.
        log.error("%s, which ends the process", words)
        return None
    return PluginError(f"{words}: raise a subclass of Exception")


def _is_closed(error: BaseException) -> bool:
    """Return whether the error is a GeneratorExit with which Python closes a coroutine. False if a `raise` statement has raised it."""
    if not isinstance(error, GeneratorExit):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or opcode.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] != "RAISE_VARARGS"


@contextmanager
def logging_if_blocked(what: Callable[[], str]) -> Iterator[None]:
    """Log the line that the `with` block is running, if it has not ended after `SLOW_SECONDS`.

    For a block that imports or calls user code before an event loop runs. `what`: returns the name of that code, which begins the log line.
    """
    thread = threading.get_ident()

    def look() -> None:
        line = running_line(sys._current_frames().get(thread))
        log.warning("%s has not returned for %.0f s: it is at %s", what(), SLOW_SECONDS, line)

    timer = threading.Timer(SLOW_SECONDS, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(1)  # The thread ends at once, so that a program finds no thread of ours.


def is_being_cancelled() -> bool:
    """Return whether the running task was cancelled, even if its code has caught the cancellation."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # There is no event loop in this thread.
        return False
    return task is not None and task.cancelling() > 0


# --- tasks of user code that do not end ----------------------------------------------------------------------------------------------

LEFT_BEHIND: set[asyncio.Task[Any]] = set()
"""Tasks that did not end although they were cancelled. They are kept here, because Python runs the code of such a task once more when it
discards the task.
"""


async def end_or_leave(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> list[asyncio.Task[Any]]:
    """Wait until these cancelled tasks have ended, but at most `seconds`. Return the tasks that have not ended.

    When the event loop closes, it does not wait for the returned tasks. Their code runs on as long as the loop, because it cannot be
    stopped from outside. Errors that the tasks raise at their end are not logged.
    """
    running = {task for task in tasks if not task.done()}
    if not running:
        return []
    try:
        ended, hung = await asyncio.wait(running, timeout=seconds)
    except asyncio.CancelledError:
        # The tasks must have ended, because the caller closes what they use.
        await asyncio.wait(running, timeout=seconds)
        raise
    for task in ended:
        if not task.cancelled():
            # Retrieved, because otherwise asyncio would log the error of this task, which was cancelled, with a traceback.
            task.exception()
    for task in hung:
        LEFT_BEHIND.add(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        # `asyncio.run` waits for registered tasks. This call removes the task from them, even a task of another library.
        asyncio._unregister_task(task)
    return list(hung)


class Closeable(Protocol):
    """A plugin that a job closes."""

    async def close(self) -> None:
        """Release what the plugin has opened."""


GRACE_SECONDS = 1.0
"""How long a cancelled call may take to end (seconds)."""


async def close_or_leave(plugin: Closeable, seconds: float, note: str | None = None) -> None:
    """Close a plugin, and wait at most `seconds` for its `close`.

    After this time, cancel the call and log an error. If the call does not end even then, continue without it.

    - `note`: the note of an error, as in `PluginCall`.

    Raises: the error of `close`.
    """

    async def close() -> None:
        with PluginCall(plugin, "close", note=note):
            await plugin.close()

    closing, place = asyncio.create_task(close()), ""
    try:
        await asyncio.wait([closing], timeout=seconds)
    finally:
        if not closing.done():
            place = waiting_line(closing)
            closing.cancel()
            await end_or_leave([closing], GRACE_SECONDS)
    if not place:
        return closing.result()
    log.error(
        "`%s.close` has not ended after %g s (flink.job.drain.timeout), and waits at %s: the job ends without it",
        type(plugin).__name__,
        seconds,
        place,
    )
