"""`rp.spark.fetchers`: the long-running fetchers of mode CONTINUOUS, a Spark job that the driver program holds."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from recordpublisher.plugins.runtime.background_loop import BackgroundLoop
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.service.kinesis_service import check_job
from recordpublisher.plugins.stores.by_location import object_store_of
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, FencedError, RecordPublisherError
from recordpublisher.publishers.retry import RetryPolicy

from .beginning import begin_generation
from .generation import Generation, newest_generation
from .identity import check_place
from .lane_task import FATAL, LaneJob, run_lane
from .names import failure_name
from .slots import checked_tasks, is_local
from .switchboard import Switchboard, checked_port

LOG = logging.getLogger("recordpublisher.spark")
PAUSES = RetryPolicy(max_retries=0, base_ms=1_000, max_ms=60_000, exponent=2.0)
LONG_LIFE_SECONDS = 60.0
"""A job that ran for so long has recovered: the next pause is a short one again."""
STOP_SECONDS = 30.0


def fetchers(spark: Any, options: Mapping[str, object], *, tasks: int | None = None, port: int = 0) -> Fetchers:
    """Start `tasks` long-running fetchers (None: half of the slots) with the options of the query that reads their spool.

    Each keeps a slot of the cluster for as long as it lives; the query needs some too. They end by `stop`, at the end of a `with` block, or
    with the driver. Two starts with one `metadataLocation`: the later one takes over.

    Fetchers reach the driver at `spark.driver.host`, on `port` and the one after it: name one where a firewall stands between (0: any that
    are free, drawn at each start).

    Raises: ConfigurationError (also where there is no SparkContext, as over Spark Connect), StreamNotFoundError, KinesisError, StateError.
    """
    checked = SparkOptions.parse({key: str(value) for key, value in options.items()})
    if checked.mode != "CONTINUOUS":
        raise ConfigurationError("mode", checked.mode, "CONTINUOUS, for long-running fetchers")
    check_job(checked)
    context = _context_of(spark)
    started = Fetchers(context, checked, checked_tasks(tasks, context), port=checked_port(port))
    started.start()
    return started


class Fetchers:
    """Owns the job of the fetchers: starts it again when it dies, until `stop`. A thread of the driver program waits for it."""

    def __init__(
        self, context: Any, options: SparkOptions, tasks: int, pauses: RetryPolicy = PAUSES, port: int = 0
    ) -> None:
        self._pauses = pauses
        self._port = port
        self._context = context
        self._options = options
        self._tasks = tasks
        self._group = f"recordpublisher-{uuid.uuid4().hex[:12]}"
        self._clock = SystemClock()
        self._loop = BackgroundLoop("recordpublisher-fetchers")
        self._store = object_store_of(options.metadata_location, "metadataLocation", options.properties)
        self._generation: Generation | None = None
        self._switchboard: Switchboard | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: RecordPublisherError | None = None
        """Why they have given up, once they have; the query ends with the same reason."""

    def start(self) -> None:
        """Open a generation and start the job. Raises: what makes it impossible."""
        from pyspark import InheritableThread

        self._loop.__enter__()
        try:
            self._loop.run(check_place(self._store, self._options.metadata_location))
            job = self._begin()
        except BaseException:
            self._close()
            raise
        self._thread = InheritableThread(target=self._live, args=(job,), daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether they have neither stopped nor given up."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def lanes(self) -> set[int]:
        """The numbers of the fetchers that run at this moment."""
        return set() if self._switchboard is None else self._switchboard.lanes

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End well: what was read is in the spool. Those that take longer are cancelled; they lose nothing. May be called twice."""
        if self._thread is None:
            return
        self._stopping.set()
        if self._thread.is_alive():
            self._loop.run(self._tell_to_stop())
            self._thread.join(seconds)
        if self._thread.is_alive():
            LOG.warning("the fetchers did not end within %s s and are cancelled", seconds)
            self._cancel()
            self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():  # else Spark hangs, and the thread still needs the loop
            self._close()
        self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.failure is not None:
            raise self.failure

    # --- the thread ------------------------------------------------------------------------------------------------------------

    def _live(self, job: LaneJob | None) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                job = job or self._begin()
                self._run(job)
                reason = "its tasks have ended"
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"[:2000]
                if self._is_over(error):
                    return
            finally:
                self._end()
                job = None
            failures = 0 if self._clock.monotonic() - began >= LONG_LIFE_SECONDS else failures + 1
            pause = self._pauses.delay_seconds(failures)
            if not self._stopping.is_set():
                LOG.warning("the job of the fetchers has ended and is started again in %.1f s: %s", pause, reason)
                self._stopping.wait(pause)

    def _begin(self) -> LaneJob:
        return self._loop.run(self._opened())

    async def _opened(self) -> LaneJob:
        newest = await newest_generation(self._store)
        if self._generation is not None and newest is not None and newest.number > self._generation.number:
            raise FencedError("fetchers that were started later own this spool; these must stop")
        begun = await begin_generation(self._options, self._store, self._tasks, self._clock)
        self._generation, options = begun
        host, bind = _addresses(self._context)
        self._switchboard = Switchboard(host, bind, self._cancel, self._port)
        job = await self._switchboard.open(options, self._generation)
        if self._stopping.is_set():  # told while there was nobody to tell
            self._switchboard.stop_lanes()
        return job

    def _run(self, job: LaneJob) -> None:
        """The job, to its end. Raises: what Spark makes of a task's failure."""
        context = self._context
        streams = ", ".join(self._options.streams)
        context.setJobGroup(
            self._group, f"recordpublisher: {self._tasks} fetchers of {streams}", interruptOnCancel=True
        )
        context.parallelize(range(self._tasks), self._tasks).map(partial(run_lane, job)).collect()

    def _is_over(self, error: Exception) -> bool:
        """Whether to give up, and say why."""
        if self._stopping.is_set():
            return True
        if _is_stopped(self._context):
            LOG.warning("the SparkContext was stopped, and the fetchers with it")
            return True
        told = [failure for failure in (self._switchboard.failures if self._switchboard else []) if failure.is_fatal]
        if told:
            error = RecordPublisherError(f"fetcher {told[0].lane} died of {told[0].reason}")
        elif not isinstance(error, (*FATAL, FencedError)):
            return False
        self.failure = error if isinstance(error, RecordPublisherError) else RecordPublisherError(str(error))
        LOG.error("the fetchers give up: %s", self.failure)
        if self._generation is not None and not isinstance(error, FencedError):
            name = failure_name(self._generation.number)
            self._loop.run(self._store.put_if_absent(name, str(self.failure).encode()))
        return True

    def _end(self) -> None:
        if self._switchboard is not None:
            self._loop.run(self._switchboard.close())
            self._switchboard = None

    async def _tell_to_stop(self) -> None:
        if self._switchboard is not None:
            self._switchboard.stop_lanes()

    def _cancel(self) -> None:
        if not _is_stopped(self._context):
            self._context.cancelJobGroup(self._group)

    def _close(self) -> None:
        self._loop.run(self._store.close())
        self._loop.__exit__(None, None, None)


def _context_of(spark: Any) -> Any:
    try:
        return spark.sparkContext
    except Exception as error:  # what Spark Connect raises has changed from release to release
        raise ConfigurationError(
            "mode",
            "CONTINUOUS",
            "DRIVER or BATCH, or rp.spark.fetchers in a driver program on the cluster beside this query",
            reason="long-running fetchers are a job of a SparkContext, and this session (Spark Connect) has none",
        ) from error


def _addresses(context: Any) -> tuple[str, str]:
    """Where executors find the driver, and where it listens: on loopback if they are on this machine (C4)."""
    if is_local(context):
        return "127.0.0.1", "127.0.0.1"
    conf = context.getConf()
    host = str(conf.get("spark.driver.host"))
    return host, str(conf.get("spark.driver.bindAddress") or host)


def _is_stopped(context: Any) -> bool:
    return context._jsc is None or bool(context._jsc.sc().isStopped())
