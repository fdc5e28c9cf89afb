"""Helps with the Python processes that Spark starts: event loop and clients, errors, logging, and garbage collection."""

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.user_code import cause_in_user_code

LOG = logging.getLogger("recordpublisher.spark")
T = TypeVar("T")
HIDE_TRACEBACK_VARIABLE = "SPARK_HIDE_TRACEBACK"
"""An environment variable. If it is set, Spark reports the error of a Python process without the traceback."""


class WorkerLoop:
    """Owns a thread with a running event loop, and the cached objects that belong to that loop."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._cache: dict[Hashable, Any] = {}
        self._background: set[Future[Any]] = set()
        self._freeze_calls = 0
        thread = threading.Thread(target=self._loop.run_forever, name="recordpublisher-loop", daemon=True)
        thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, wait for it, and return its result.

        If the waiting thread is interrupted, the coroutine is cancelled.
        """
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop. The caller waits for the future, or cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run_in_background(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the background. Its error is logged and kept in the future."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._background.add(future)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: Future[Any]) -> None:
        self._background.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            is_ours = isinstance(error, RecordPublisherError)  # Their messages are enough without a traceback.
            LOG.error(
                "a background call of the Spark source failed; the query continues without it: %s: %s",
                type(error).__name__,
                error,
                exc_info=None if is_ours else error,
            )

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached object of `key`. The first call in this process makes it with `make`.

        Call it only in the thread that runs Spark's tasks.
        """
        if key not in self._cache:
            self._cache[key] = make()
        return cast("T", self._cache[key])

    def forget(self, key: Hashable) -> None:
        """Drop the object of `key` from the cache."""
        self._cache.pop(key, None)

    def freeze_heap(self) -> None:
        """Exclude all existing objects from garbage collection, at the second call only.

        Call it after each batch, when the clients are open.

        The modules of Spark and the AWS SDK have hundreds of thousands of objects. Scanning them again and again took a quarter of the CPU
        time of a read over 900 shards. The freeze itself takes 0.04 s. A process that ends after its first batch, as in a scheduled run,
        would not gain that back.
        """
        self._freeze_calls += 1
        if self._freeze_calls == 2:
            gc.collect()
            gc.freeze()


_CURRENT: WorkerLoop | None = None


def worker_loop() -> WorkerLoop:
    """Return the event loop of this process. The first call starts it."""
    global _CURRENT  # noqa: PLW0603 - one for each process is the point
    if _CURRENT is None or _CURRENT.pid != os.getpid():
        _CURRENT = WorkerLoop()
    return _CURRENT


@contextmanager
def errors_as_one_sentence() -> Iterator[None]:
    """Let Spark report an error of this library as one sentence, without a traceback. Other errors keep their tracebacks.

    Use it around methods that Spark calls in a Python process. The traceback is logged: at level ERROR if code of the user or of a plugin
    raised its cause, else at INFO. The environment variable that hides the traceback stays set, because Spark ends the process after an
    error.
    """
    try:
        yield
    except RecordPublisherError as error:
        level = logging.INFO if cause_in_user_code(error) is None else logging.ERROR
        LOG.log(level, "Spark receives this error: %s", error, exc_info=error)
        if is_process_of_spark():
            os.environ[HIDE_TRACEBACK_VARIABLE] = "1"
        raise


LOG_VARIABLE = "RECORDPUBLISHER_SPARK_LOG"
"""An environment variable of the driver with the log level."""


def log_to_stderr() -> None:
    """Set the log level of this library to that of `LOG_VARIABLE`. Add a handler, unless the process has one.

    Raises: ConfigurationError if the level is invalid.
    """
    given = os.environ.get(LOG_VARIABLE, "WARNING")
    level = logging.getLevelNamesMapping().get(given.upper())
    if level is None:
        raise ConfigurationError(LOG_VARIABLE, given, "DEBUG, INFO, WARNING, ERROR or CRITICAL")
    if not logging.getLogger().handlers:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("recordpublisher").setLevel(level)


# --- garbage collection in the processes that Spark starts ----------------------------------------------------------------------------

COLLECTION_THRESHOLD = 10_000
"""Number of new objects after which Python starts a garbage collection. Python's default is 700."""


def reduce_garbage_collection() -> None:
    """Exclude all existing objects from garbage collection, and collect less often. Do nothing if Spark did not start this process.

    Call it before the imports of this library. PySpark's modules have a hundred thousand objects, and Python would scan them again and
    again during further imports. That would take a fifth of the CPU time of a task's imports.
    """
    if is_process_of_spark():
        gc.freeze()
        gc.set_threshold(COLLECTION_THRESHOLD, *gc.get_threshold()[1:])


def is_process_of_spark() -> bool:
    """Return whether Spark started this process. Its main module is then one of pyspark, or our daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith(("pyspark.", "recordpublisher.plugins.spark."))
