"""Puts records into a stream from programs without asyncio, from any thread."""

from __future__ import annotations  # the reference and help() show types by their names

import asyncio
import atexit
import logging
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeVar, Unpack

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.plugins.runtime.background_loop import BackgroundLoop, LoopForExit, call_before_pools_close
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.properties.keyword_types import JobSettings
from recordpublisher.publishers.properties.sink_properties import SINK_STREAM
from recordpublisher.publishers.properties.times_and_sizes import Duration, seconds_of

from .kinesis_sink import KinesisSink, stream_and_properties
from .pending_records import FailedRecord
from .sink_settings import QueueLimit
from .writer import NO_CAUSE_YET

log = logging.getLogger("recordpublisher.producer")
T = TypeVar("T")


class Producer:
    """Puts records into a stream from any thread, without asyncio: `producer = rp.Producer("orders", properties)`.

    It has the arguments, limits and errors of `KinesisSink`, which runs in a thread of its own. The thread starts with the first `put` or
    `with`. `on_failure` is called in that thread.

    - `close`, the end of a `with` block and the exit of the interpreter wait until every record is acknowledged. In an outage they give up
      the rest after `flink.job.drain.timeout`. A process that a signal ends without an exit (SIGKILL; SIGTERM without a handler) loses
      the records that are not acknowledged.
    - A record may be in the stream twice, with two sequence numbers, if the response of its put was lost (see `KinesisSink`).
    - After `os.fork` the child has a thread, connections and an empty queue of its own. Records accepted before are put by the parent.

    Raises: ConfigurationError if a setting is invalid.
    """

    def __init__(
        self,
        stream: str | Mapping[str, object],
        properties: Mapping[str, object] | None = None,
        *,
        queue_limit: QueueLimit | None = None,
        ordering: Literal["NONE", "PER_KEY"] | None = None,
        fail_on_error: bool | None = None,
        on_failure: Callable[[FailedRecord], None] | None = None,
        **settings: Unpack[JobSettings],
    ) -> None:
        name, given = stream_and_properties(stream, properties, settings, Producer)
        self._make_sink = partial(
            KinesisSink,
            # A copy, because a child of this process makes a sink later. With the stream in it, the sink does not check it again.
            given.merged({SINK_STREAM.key: name}),
            queue_limit=queue_limit,
            ordering=ordering,
            fail_on_error=fail_on_error,
            on_failure=on_failure,
        )
        self._unopened = self._make_sink()  # Checks the settings, and has the metrics of a producer that has not begun.
        self._context = copy_context()
        # Reentrant, because a signal handler may call `close` during a `close` of the same thread.
        self._lock = threading.RLock()
        self._thread: _SinkThread | None = None
        self._is_closed = False
        self._is_late = False
        """Whether the producer has begun so late in the exit of the interpreter that nothing will wait for its records."""
        self._has_warned = False

    def __enter__(self) -> Self:
        """Open the connection. Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix."""
        has_begun = self._thread is not None
        try:
            self._run(lambda thread: thread.opened())
        except BaseException:
            # No `__exit__` follows, so a program that tries again and again would keep a thread of each attempt.
            if not has_begun:
                self._end_thread()
            raise
        return self

    def _end_thread(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        _STARTED.discard(self)
        if thread is not None:
            with suppress(Exception):  # The caller gets the error of the opening.
                thread.close()

    def __aenter__(self) -> NoReturn:
        """Refuse an `async with`. Raises: TypeError, which says what to write instead."""
        raise TypeError("Producer needs 'with', not 'async with'. In asyncio code use 'async with rp.KinesisSink(...)'")

    def __aexit__(self, *_: object) -> NoReturn:
        """Raise NotImplementedError. Python never calls this method, but looks it up before it calls `__aenter__`."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(
        self,
        data: bytes,
        partition_key: str,
        explicit_hash_key: str | None = None,
        *,
        timeout: Duration | None = None,
        wait: bool = False,
    ) -> None:
        """Accept one record like `KinesisSink.put`. While the limit is reached, wait for up to `timeout` (by default without end).

        - `timeout`: seconds below 1000, a text such as `500ms`, or a timedelta.
        - `wait`: return when the record is acknowledged, and not when it is accepted. `timeout` then limits both waits, and after a
          TimeoutError the record may still be put.

        If an interruption (Ctrl-C) ends the call, the record may have been accepted. In a thread that runs an event loop the call blocks
        the loop, and warns once (RuntimeWarning).

        Raises: TimeoutError if the record was not accepted (with `wait`: not acknowledged) in time, ConfigurationError if `timeout` is not
        a duration, and the errors of `KinesisSink.put`.
        """
        if not self._has_warned:
            self._warn_in_event_loop("put")
        limit = None if timeout is None else seconds_of("timeout", timeout)
        try:
            self._run(lambda thread: thread.put(data, partition_key, explicit_hash_key, wait), limit)
        except TimeoutError as error:
            if limit is None:  # The network raised it.
                raise
            missed = "acknowledged (it may still be put)" if wait else "accepted"
            raise TimeoutError(f"the record was not {missed} in {limit:g} s: {self._why_late()}") from error
        if self._is_late:
            _flush_or_say_so(self)

    def flush(self, timeout: Duration | None = None) -> None:
        """Return when every record accepted before this call, in this process, is acknowledged.

        Raises: TimeoutError if that takes longer than `timeout`, ConfigurationError if `timeout` is not a duration, and the errors of
        `put`.
        """
        limit = None if timeout is None else seconds_of("timeout", timeout)
        if self._thread is None and not self._is_closed:
            return
        if not self._has_warned:
            self._warn_in_event_loop("flush")
        try:
            self._run(lambda thread: thread.flush(), limit)
        except TimeoutError as error:
            if limit is None:
                raise
            raise TimeoutError(f"the flush did not end in {limit:g} s: {self._why_late()}") from error

    def close(self) -> None:
        """Flush, and end the thread. In an outage give up records like `KinesisSink.close`.

        Raises: the errors of `put`, unless an earlier call has raised the error; RecordPublisherError if `on_failure` calls `close`,
        because each would wait for the other.
        """
        if (thread := self._thread) is not None:
            thread.loop.refuse_own_thread()
        with self._lock:
            self._is_closed = True
        try:
            if self._thread is not None:
                self._thread.close()
        finally:
            _STARTED.discard(self)

    @property
    def stream(self) -> str:
        """Name of the stream that the producer puts into."""
        return self._current_sink().stream

    def metrics(self) -> dict[str, Any]:
        """Return the values of `KinesisSink.metrics` for this process."""
        return self._current_sink().metrics()

    def exported_metrics(self) -> list[SinkMetric]:
        """Return the metrics with type, unit and meaning, for `rp.export_metrics` and `rp.metrics_text`."""
        return self._current_sink().exported_metrics()

    def reasons_not_ready(self) -> list[str]:
        """Return in plain words why the producer puts no records (see `KinesisSink.reasons_not_ready`). Empty before the first `put`.

        If the producer could not be opened, or its stream was deleted, this call starts another attempt to open it.
        """
        if (thread := self._thread) is not None:
            return thread.reasons_not_ready()
        return [f"{self._unopened.destination()}: it is closed"] if self._is_closed else []

    def _run(self, work: Callable[[_SinkThread], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        thread = self._thread
        if thread is None or self._is_closed:
            thread = self._start()
        try:
            return thread.loop.run(work(thread), timeout)
        except asyncio.CancelledError:  # The call still waited when the loop ended.
            raise SinkError("the producer is closed") from None

    def _warn_in_event_loop(self, method: str) -> None:
        """Warn once of a call that blocks an event loop.

        The call is not refused, because blocking the loop does no harm in a notebook.
        """
        if asyncio._get_running_loop() is None:
            return
        if (running := self._thread) is not None:
            running.loop.refuse_own_thread()
        self._has_warned = True
        words = f"`rp.Producer.{method}` blocks the event loop of this thread while it waits"
        use = f"`async with rp.KinesisSink(...) as sink` and `await sink.{method}(...)`"
        thread = f"`await asyncio.to_thread(producer.{method}, ...)`"
        warnings.warn(f"{words}: use {use}, or {thread}", RuntimeWarning, stacklevel=3)

    def _start(self) -> _SinkThread:
        if self._is_closed:
            raise SinkError("the producer is closed")
        _STARTED.add(self)  # Before the lock is held, because a fork at that moment gives the child a new lock.
        self._is_late = not _flush_at_exit()
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = _SinkThread(self._make_sink, self._context)
                if self._is_closed:  # A signal handler in this thread has done so, and found no sink thread.
                    self._thread.close()  # type: ignore[unreachable]
        if self._is_closed or self._thread is None:  # closed in the meantime
            raise SinkError("the producer is closed")
        return self._thread

    def _current_sink(self) -> KinesisSink:
        return self._unopened if self._thread is None else self._thread.sink

    def _outstanding(self) -> str:
        measured = self.metrics()
        count, size = measured["outstandingRecordsCount"], measured["outstandingBytes"]
        return f"records not acknowledged: {count} ({size} bytes)"

    def _why_late(self) -> str:
        reason = self._current_sink().why_not_put()
        return self._outstanding() + (f"; {reason}" if reason else "")

    def _leave_to_parent(self) -> None:
        """Begin again in a forked child, because the thread, the loop and the connections belong to the parent."""
        # Kept alive, because destroying the object would close connections that the parent uses.
        _INHERITED.append(self._thread)
        self._lock, self._thread = threading.RLock(), None


class _SinkThread:
    """The thread of a producer in one process. The sink and the coroutine methods of this class run in that thread."""

    def __init__(self, make_sink: Callable[[], KinesisSink], context: Context) -> None:
        self.sink = make_sink()
        self._make_sink = make_sink
        self._context = context
        self._opening: asyncio.Task[KinesisSink] | None = None
        self._last_reasons: list[str] = []
        """Why the sink of the previous attempt to open was not ready. Reported until the current attempt has a cause of its own."""
        self._untold_error: BaseException | None = None
        """The error of a sink whose stream was deleted, until a caller receives it."""
        self._closing = threading.RLock()
        self._close_task: asyncio.Task[None] | None = None
        self._has_closed = False
        self.loop = BackgroundLoop(f"rp.Producer, {self.sink.destination()},", loop_factory=LoopForExit).__enter__()

    async def opened(self) -> KinesisSink:
        """Open the sink if it is not open, and return it.

        The sink is opened at the first call, and again if the last attempt has failed, or if the stream was deleted since. All calls wait
        for the same attempt, which continues if a call is cancelled.
        """
        opening = self._begin_opening()
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise SinkError("the producer is closed") from None
            raise

    def reasons_not_ready(self) -> list[str]:
        """Return why the sink is not ready. If it could not be opened, or its stream was deleted, try to open it again.

        The next `put` would also try that. But a process that is not ready may get no requests to put.
        """
        sink, opening = self.sink, self._opening
        if opening is None or self._is_usable():
            return sink.reasons_not_ready()
        if opening.done():
            self.loop.call_soon(self._begin_opening)
        is_cause_known = opening.done() or sink.why_not_put() != NO_CAUSE_YET
        return sink.reasons_not_ready() if is_cause_known else self._last_reasons or sink.reasons_not_ready()

    def _begin_opening(self) -> asyncio.Task[KinesisSink]:
        opening = self._opening
        if opening is None or (opening.done() and not self._is_usable() and self._close_task is None):
            ended = self.sink if self._is_open() else None
            if opening is not None:
                earlier = self.sink
                self._last_reasons = earlier.reasons_not_ready()
                self._keep_untold_error()
                self.sink = self._make_sink()
                self.sink.counters.continue_from(earlier.counters)
            # In the context of the producer, because the tasks of the sink outlive the request that makes the first call.
            opening = asyncio.create_task(self._open(self.sink, ended), context=self._context.copy())
            opening.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # marks it as retrieved
            self._opening = opening
        return opening

    async def _open(self, sink: KinesisSink, ended: KinesisSink | None) -> KinesisSink:
        if ended is not None:
            with suppress(Exception):  # Its error is kept in `_untold_error`.
                await ended.close()
        return await sink.__aenter__()

    def _is_usable(self) -> bool:
        """Return whether the sink is open and its stream still exists. If the stream was deleted, the sink may be opened again later."""
        # After other errors that end a sink, for example missing rights, an opening may succeed and lose the next records as well.
        return self._is_open() and not self.sink.has_lost_stream()

    def _keep_untold_error(self) -> None:
        if self.sink.has_lost_stream() and (error := self.sink.take_untold_error()) is not None:
            self._untold_error = error

    def _raise_untold_error(self) -> None:
        """Raise the error of a sink whose stream was deleted, if no caller has received it: its records are lost."""
        self._keep_untold_error()
        error, self._untold_error = self._untold_error, None
        if error is not None:
            raise error

    async def put(self, data: bytes, partition_key: str, explicit_hash_key: str | None, wait: bool) -> None:
        self._raise_untold_error()
        await (await self.opened()).put(data, partition_key, explicit_hash_key, wait=wait)

    async def flush(self) -> None:
        """Flush the accepted records. Do nothing if the sink has never been open."""
        self._raise_untold_error()
        if self._is_open():
            await self.sink.flush()

    async def flush_or_give_up(self) -> None:
        """Flush the accepted records. In an outage give them up after `flink.job.drain.timeout`."""
        self._raise_untold_error()
        if self._is_open():
            await self.sink.flush_or_give_up()

    def close(self) -> None:
        """Close the sink, then end the loop and the thread. Later calls do nothing.

        Raises: SinkError if the thread has ended before.
        """
        with self._closing:
            if self._has_closed:
                return
            try:
                if not self.loop.is_alive:
                    left = self.sink.metrics()["outstandingRecordsCount"]
                    raise SinkError(
                        f"the producer's thread ended before `close` was called; records not acknowledged: {left}"
                    )
                self.loop.run(self._closed())
            finally:
                self._has_closed = True
                self.loop.__exit__(None, None, None)

    async def _closed(self) -> None:
        """Close the sink, or wait for a call that closes it already: a signal handler may call `close` again during a `close`."""
        if self._close_task is None:
            self._close_task = asyncio.create_task(self._close())
        await self._close_task

    async def _close(self) -> None:
        opening = self._opening
        if opening is None:
            await self.sink.close()
        elif not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        elif self._is_open():
            await self.sink.close()
        self._raise_untold_error()

    def _is_open(self) -> bool:
        opening = self._opening
        return opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None


_STARTED: set[Producer] = set()
"""The producers of this process that have begun and are not closed; they are flushed at exit even if the program forgets them."""
_INHERITED: list[object] = []
_registered: list[bool] = []
"""Empty until a producer begins. Then its only item says whether the exit of the interpreter will still close the producers."""


def _flush_at_exit() -> bool:
    """Register a function that closes all producers when the interpreter exits. Return False if the exit would no longer call it.

    The function runs after all threads that are not daemons have ended, because these may put records until then. In a child of
    multiprocessing Python calls no such function, so there the producers are flushed before the threads end.
    """
    if not _registered:
        _registered.append(call_before_pools_close(partial(_end_all, _flush_or_say_so)))
        atexit.register(_close_all)
    # When the exit has begun, the main thread only runs functions of `atexit`, which calls none that is registered by then.
    return _registered[0] or threading.current_thread() is not threading.main_thread()


def _close_all() -> None:
    _registered[:] = [False]
    _end_all(Producer.close)


def _flush_or_say_so(producer: Producer) -> None:
    try:
        producer.flush(timeout=1)
    except TimeoutError:
        log.warning("the exit of the process waits until all records are put: %s", producer._why_late())
        producer._run(lambda thread: thread.flush_or_give_up())
        producer.flush()  # Raises the error of records that were given up.


def _end_all(end: Callable[[Producer], None]) -> None:
    for producer in list(_STARTED):
        try:
            end(producer)
        except Exception as error:
            # Without a traceback, which would only show the exit.
            message = "at exit, the producer of %s failed: %s: %s"
            log.error(message, producer.stream, type(error).__name__, error)  # noqa: TRY400


def _begin_again_in_child() -> None:
    for producer in _STARTED:
        producer._leave_to_parent()
    _STARTED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again_in_child)
