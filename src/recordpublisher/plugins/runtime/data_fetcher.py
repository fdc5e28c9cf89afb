"""`rp.DataFetcher`: the job of a program. `job_assembly.py` builds its parts; `fetcher/shard_fetcher.py` does the reading."""

from __future__ import annotations  # The reference and help() show types by their names.

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.fetcher.alarms import AlarmListener
from recordpublisher.fetcher.checkpoints.snapshot_format import ANOTHER_PLACE
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason
from recordpublisher.fetcher.sink import Sink, State, Unfinished
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import FatalKinesisError, FencedError, SinkError, StateError
from recordpublisher.publishers.log_fields import job_in_lines
from recordpublisher.publishers.properties.job_properties import (
    DESERIALIZER,
    DRAIN_TIMEOUT,
    JOB_NAME,
    JOB_WORKERS,
    METRICS_EXPORTERS,
    SINK,
    STATE_URI,
    TIMESTAMP_FIELD,
    WATERMARK_STRATEGY,
)
from recordpublisher.publishers.properties.keyword_types import JobSettings
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.times_and_sizes import Duration, seconds_of
from recordpublisher.publishers.records import V
from recordpublisher.publishers.safe_text import notes_of, text_of
from recordpublisher.publishers.user_code import add_note, describe_error, exc_info_for_log

from ..host.plugin_loading import load_registry
from ..host.registry import Registry
from ..only_async_with import OnlyAsyncWith
from .argument_checks import (
    COMMAND_OPTIONS,
    Assigner,
    MakeDecorator,
    checked_properties,
    decorators_and_type,
    properties_with_arguments,
)
from .background_loop import JOBS_IN_THREADS, LoopWatch
from .job_assembly import build_job
from .stop_signals import CLOSING_SECONDS, SHORT_ERRORS, STOP_SIGNALS, tell_what_drains
from .stream_names import StreamNames, StreamsArgument

T = TypeVar("T")
log = logging.getLogger("recordpublisher.fetcher")


_WAIT_READY_SECONDS = 5.0
_OWNERS_OF_SINKS: dict[int, DataFetcher[Any]] = {}
"""The open fetcher that uses each sink, by the sink's `id`."""


class DataFetcher(OnlyAsyncWith, Generic[V]):
    """Reads streams into a sink. The constructor checks the settings, `async with` opens the fetcher, and `run` or `run_bounded` reads.

    - `streams`: names, ARNs or NAME=ARN (a name of your own), one or several. Or a function, plain or async, that returns them; it is
      called in a thread at each `flink.shard.discovery.intervalmillis`.
    - `properties`, `settings`: properties as a mapping, as keyword arguments (`region="eu-west-1"`, see `Settings`), or both.
    - `deserializer`: makes the value of a record (default: bytes). It is a type that JSON is decoded into and checked (`Order`,
      `list[Order]`), `rp.Json`, `rp.Avro` or `rp.Protobuf`, or a function of a record. It overrides the property.
    - `timestamp_assigner`: a function that returns the event time of a record in epoch ms (default: its arrival). It overrides the
      property.
    - `watermark_assigner`: a function that returns the watermark that a record carries in epoch ms (default: `flink.watermark.strategy`).
    - `sink`, `state_store`: objects, by default made from `flink.sink` and `flink.state.uri`. A text as `sink` or `deserializer` is the
      name of a registered one.
    - `restore`: one snapshot, or a list of them.
    - `on_alarm`: called with each `Alarm` in the loop's thread. It must return soon.
    - `handle_signals`: stop the run at the first SIGTERM or Ctrl-C while the fetcher is open, with a last checkpoint. A second signal acts
      as if this were not set. Only in the main thread.

    Raises: ConfigurationError if a setting is invalid; StateError if a snapshot cannot be read.
    """

    @SHORT_ERRORS
    def __init__(
        self,
        streams: StreamsArgument,
        properties: Mapping[str, object] | None = None,
        *,
        sink: Sink[V] | str | None = None,
        deserializer: DeserializerArgument[V] | None = None,
        timestamp_assigner: Assigner | None = None,
        watermark_assigner: Assigner | None = None,
        restore: State | Sequence[State] | None = None,
        state_store: ConditionalStore | None = None,
        on_alarm: AlarmListener | None = None,
        handle_signals: bool = False,
        clock: Clock | None = None,
        registry: Registry | None = None,
        **settings: Unpack[JobSettings],
    ) -> None:
        command = COMMAND_OPTIONS.get()
        given = command.properties(
            checked_properties(properties, settings, DataFetcher, sink=sink, deserializer=deserializer)
        )
        self.properties = given
        self.given_sink = None if isinstance(sink, str) else command.argument(sink, SINK)
        self._given_store = command.argument(state_store, STATE_URI)
        named = isinstance(deserializer, str)  # The properties have the name.
        self.given_deserializer = None if named else command.argument(deserializer, DESERIALIZER)
        self._values = (
            self.given_deserializer,
            command.argument(timestamp_assigner, TIMESTAMP_FIELD),
            command.argument(watermark_assigner, WATERMARK_STRATEGY),
        )
        names = StreamNames(command.streams(streams))
        job = build_job(
            given,
            names,
            registry or load_registry(),
            sink=self.given_sink,
            deserializer=self._values[0],
            timestamp_assigner=self._values[1],
            watermark_assigner=self._values[2],
            restore=restore,
            state_store=self._given_store,
            on_alarm=on_alarm,
            clock=clock or SystemClock(),
        )
        self._fetcher, self._lister, self._streams = job.fetcher, job.lister, job.streams
        self._state_place = job.state_place
        # No warning is due if positions are stored, or if the program restores snapshots, because it then stores them too.
        self._is_loss_told = bool(job.state_place) or restore is not None
        self._given_streams = names.given
        self._checkpoints: set[asyncio.Task[Any]] = set()
        """The calls of `checkpoint` that have not ended, even if the program no longer waits for them."""
        self._handles_signals = handle_signals
        self._opening: asyncio.Task[None] | None = None
        self._is_stopped = self._has_stopped = False
        self._is_open = False
        self._is_running = False

    @property
    def job_name(self) -> str:
        """`flink.job.name`; empty if it is not set. Metrics and log lines of the job have it."""
        return self.properties.value(JOB_NAME) or ""

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams that are read now."""
        return tuple(self._streams)

    def properties_for_commands(self) -> Properties:
        """Return the properties that describe this job to a command: its streams, and where it stores its positions.

        Raises: ConfigurationError if the program has made the object that stores the positions, because no property names it.
        """
        return properties_with_arguments(
            self.properties, self._given_streams.values(), self.given_sink, self._given_store
        )

    def sink_and_decorators(self, properties: Properties) -> tuple[Sink | None, MakeDecorator, Any]:
        """Return the sink if the program gave one, a function that makes each shard's `BatchDecorator`, and the type of the values.

        A command that replays dead letters uses them.
        """
        return self.given_sink, *decorators_and_type(load_registry(), properties, *self._values)

    def _instead_of_with(self) -> str:
        return ". Without asyncio use 'for record in rp.consume(...)' or `recordpublisher run`"

    async def __aenter__(self) -> Self:
        with SHORT_ERRORS:
            if self._is_open:
                raise StateError(
                    "the fetcher is open already: use one 'async with' for it, or make another DataFetcher"
                )
            self._claim_sink()
            try:
                if self._handles_signals:
                    STOP_SIGNALS.add(self.stop)
                JOBS_IN_THREADS.add(self, self.stop, self.properties.value(DRAIN_TIMEOUT) / 1000 + CLOSING_SECONDS)
                with job_in_lines(self.job_name):
                    self._opening = asyncio.create_task(self._fetcher.open())
                if self._is_stopped:
                    self._opening.cancel()
                with LoopWatch():
                    await asyncio.wait([self._opening])
                if not self._was_stopped_unopened:
                    await self._opening
            except BaseException as error:
                try:
                    self._opening = await _ended(self._opening)
                finally:  # A second cancellation does not wait for the opening, but closes as well.
                    await self._close(error)
                raise
        self._is_open = True
        return self

    def _claim_sink(self) -> None:
        """Register this fetcher as the user of its sink. A sink of two fetchers would be opened twice, and closed with the first one.

        Raises: SinkError if another open fetcher uses the sink.
        """
        sink = self.given_sink
        if sink is None or (type(sink).open is Sink.open and type(sink).close is Sink.close):
            return  # Nothing is shared but what `write` does.
        owner = _OWNERS_OF_SINKS.setdefault(id(sink), self)
        if owner is not self:
            raise SinkError(
                f"the {type(sink).__name__} of this DataFetcher is the sink of another DataFetcher that is open, which reads "
                f"{', '.join(owner.streams)}: make a sink for each DataFetcher"
            )

    @property
    def _was_stopped_unopened(self) -> bool:
        """Whether `stop` was called while the fetcher opened. There is then nothing to run."""
        return self._is_stopped and self._opening is not None and self._opening.cancelled()

    def _check_opened(self) -> None:
        if self._was_stopped_unopened:
            raise StateError(
                "the fetcher was stopped while it opened, so it has read nothing and knows no positions. The next start begins where "
                "this one would have begun: keep the positions that you have"
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._close(error)

    def _check_may_run(self) -> None:
        if not self._is_open:
            raise StateError("the fetcher is not open: run it inside 'async with fetcher:'")
        if self._is_running:
            raise RuntimeError(
                "the fetcher is running already: wait until the first run has ended, or make another DataFetcher"
            )
        if self._has_stopped:
            raise StateError("the last run of this fetcher was stopped: make a new DataFetcher to read on")

    async def run(self) -> BoundedResult:
        """Run until `stop()`, an error, or the end of every stream.

        The run ends with a checkpoint, except after a cancellation, and after an error with which the sink may have lost records. An error
        is also logged. If no positions are stored, that is logged once.

        If the run is cancelled, the records since the last checkpoint are read again: call `stop()` instead. In a group, other workers get
        the shards of a cancelled run when the `async with` of the fetcher ends.

        Raises: RecordPublisherError if reading or storing fails, StateError if the fetcher is not open, RuntimeError if another run has not
        ended, and errors of the sink.
        """
        with SHORT_ERRORS:
            self._check_may_run()
        with job_in_lines(self.job_name):
            return await self._run_and_log()

    async def _run_and_log(self) -> BoundedResult:
        self.tell_of_lost_positions()
        self._tell_of_unused_exporters()
        try:
            return await self.run_bounded()
        except Exception as error:
            if isinstance(error, FencedError):
                add_note(
                    error,
                    f"If that was another process of the same job, set {JOB_WORKERS.key}=GROUP in all of them to share the "
                    f"shards. If it was another job, give it {ANOTHER_PLACE}",
                )
            words = ". ".join([text_of(error), *notes_of(error)])
            # The error is logged here, because a program may await the run only when a server next to it ends.
            log.error(  # noqa: TRY400 - the traceback is raised
                "the run ended with an error, and this process no longer reads %s: %s: %s. "
                "Make and run a new DataFetcher to resume",
                ", ".join(self.streams),
                type(error).__name__,
                words,
            )
            raise

    def tell_of_lost_positions(self) -> None:
        """Log once that positions are lost at the end, if no positions are stored and the program does not restore snapshots."""
        if not self._is_loss_told:
            from ..lag.job_state import effect_of_no_positions  # Imported here because it loads the modules of groups.

            self._is_loss_told = True
            if words := effect_of_no_positions(None, self.properties):
                log.warning("%s", words)

    def _tell_of_unused_exporters(self) -> None:
        """Log if the properties name exporters, and this process exports nothing: a fetcher of a program does not start them."""
        if METRICS_EXPORTERS.key in self.properties:
            from ..metrics.export import is_exporting  # Imported here because few programs need it.

            if not is_exporting():
                log.warning(
                    "%s has no effect yet, because a DataFetcher of a program exports no metrics: run it with "
                    "`async with rp.export_metrics(properties, fetcher), fetcher:`, or by `recordpublisher run`",
                    METRICS_EXPORTERS.key,
                )

    async def run_bounded(
        self,
        max_time: Duration | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        until_event_time: int | None = None,
        stop_at_tip: bool = False,
    ) -> BoundedResult:
        """Run until the first bound (see `Bounds`) is met, and return why and where the run ended.

        - `max_time`: seconds below 1000, a text such as `1h`, or a timedelta.

        The first run begins at `flink.stream.initpos`, by default LATEST: set TRIM_HORIZON to read the records that are in the stream
        already. A further call continues where the last run ended.

        Raises: the errors of `run`; StateError if `stop`, or an error in a job that stores positions, has ended an earlier run.
        """
        with SHORT_ERRORS:
            seconds = None if max_time is None else seconds_of("max_time", max_time, may_be_long=True)
            bounds = Bounds(seconds, max_records, max_bytes, until_event_time, stop_at_tip)
            self._check_may_run()
            if self._was_stopped_unopened:
                return BoundedResult(EndReason.STOPPED, {})
            self._is_running = True
            try:
                with LoopWatch(), job_in_lines(self.job_name):
                    result = await self._told(self._fetcher.run_bounded(bounds), self._fetcher.ending)
            except FatalKinesisError as error:
                if error.code in ("InvalidArgumentException", "ValidationException") and self._state_place:
                    add_note(error, f"the state is in {self._state_place}")
                raise
            else:
                self._has_stopped = result.reason is EndReason.STOPPED
                return result
            finally:
                self._is_running = False

    def stop(self) -> None:
        """End the run after the current write; call it in the loop's thread. To read on later, make a new DataFetcher.

        While the fetcher opens, for example in an outage, the opening ends at once, and `run` then has nothing to read.

        In a group, if there are other processes, the fetcher reads for at most 5 s more, until they know that they get its shards.
        """
        self._is_stopped = True
        self._fetcher.stop()
        if self._opening is not None and self._opening.cancel():
            with job_in_lines(self.job_name):
                log.info("the fetcher was stopped while it was opening: it has read nothing")

    async def _told(self, work: Coroutine[Any, Any, T], began: asyncio.Event) -> T:
        """Return the result of `work`.

        From the time at which `began` is set, log regularly what the work waits for. User code may never return.
        """
        sink = self.properties.value(SINK) or type(self.given_sink).__name__
        job = self._fetcher
        telling = asyncio.create_task(
            tell_what_drains(
                sink,
                self.sink_unfinished,
                job.hung_publishers,
                began,
                lambda: job.error,
                job.checkpoint_times,
                self._state_place,
                job.stores_positions,
            )
        )
        try:
            return await work
        finally:
            telling.cancel()
            await asyncio.wait([telling])

    def snapshot(self) -> dict[str, Any]:
        """Return the state after exactly the batches whose `write` has returned, as a dict that can be written as JSON.

        Raises: StateError if the fetcher is not open, or was stopped while it opened.
        """
        self._check_opened()
        return self._fetcher.snapshot()

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, store the snapshot and return it.

        A call that is cancelled, as by a time-out, gives up waiting. The checkpoint continues, and the next one waits for it. Its error is
        logged. It is cancelled when calls of handlers have not returned for `flink.job.drain.timeout`.

        Raises: FencedError if the job was started again elsewhere, and that start owns the state; StateError if the snapshot cannot be
        stored, or if the fetcher is not open or was stopped while it opened; and errors of the sink's `flush`.
        """
        self._check_opened()
        with job_in_lines(self.job_name):
            # A sink that has taken its rows out for the flush would lose them if the flush was cancelled, and the next one would succeed.
            self._checkpoints.add(taking := asyncio.create_task(self._fetcher.checkpoint()))
            taking.add_done_callback(self._checkpoints.discard)
            try:
                return await asyncio.shield(taking)
            except asyncio.CancelledError:
                self._checkpoints.add(finishing := asyncio.create_task(self._finish(taking)))
                finishing.add_done_callback(self._checkpoints.discard)
                raise

    async def _finish(self, taking: asyncio.Task[dict[str, Any]]) -> None:
        """Wait for a checkpoint that the program has given up, and log its error. A hung handler must not block the end of the run."""
        try:
            await self._fetcher.finish_given_up(taking)
        except Exception as error:
            log.warning(
                "a checkpoint has failed after the program had given up waiting for it: %s",
                describe_error(error),
                exc_info=exc_info_for_log(error),
            )

    def metrics(self) -> dict[str, Any]:
        """Return `{"worker": {...}, "shards": {"orders/shardId-...": {...}}}` with plain values; see docs/reference/metrics.md."""
        return self._fetcher.metrics()

    def retention_ms(self, stream: str) -> int | None:
        """Return how long a stream keeps its records (ms), as last requested (every five minutes); None while that is not known."""
        return self._fetcher.retention_ms(stream)

    def progress(self) -> WorkerProgress:
        """Return the figures of a progress line, such as `records` and `lag_ms`. The call costs a twentieth of `metrics()`."""
        return self._fetcher.progress()

    def sink_metrics(self) -> list[SinkMetric]:
        """Return the sink's own metrics. Most sinks have none."""
        with job_in_lines(self.job_name):
            return self._fetcher.sink_metrics()

    def sink_unfinished(self) -> Unfinished | None:
        """Return the records that the sink has not finished; None for most sinks."""
        return self._fetcher.sink_unfinished()

    async def wait_ready(self) -> None:
        """Wait until the run has read each open shard once, or has ended; for tests.

        Raises: the error that ended the run.
        """
        if self._was_stopped_unopened:
            return
        with job_in_lines(self.job_name):
            line = asyncio.get_running_loop().call_later(_WAIT_READY_SECONDS, self._tell_of_missing_run)
        try:
            await self._fetcher.wait_ready()
        finally:
            line.cancel()

    def _tell_of_missing_run(self) -> None:
        if not self._is_running:
            log.warning(
                "wait_ready has waited %.0f s, and the fetcher does not run: start it in a task, as in asyncio.create_task(fetcher.run())",
                _WAIT_READY_SECONDS,
            )

    def reasons_not_ready(self) -> list[str]:
        """Return why this job is not ready, in plain words. Empty if it reads, its checkpoints are stored, and it is not fenced."""
        return self._fetcher.reasons_not_ready()

    async def _close(self, ended_by: BaseException | None) -> None:
        """Close everything. An error while closing does not hide the error that ended the job."""
        with job_in_lines(self.job_name):
            await self._close_and_log(ended_by)

    async def _close_and_log(self, ended_by: BaseException | None) -> None:
        try:
            try:
                try:
                    if self._checkpoints:
                        await asyncio.wait(self._checkpoints, timeout=self.properties.value(DRAIN_TIMEOUT) / 1000)
                finally:  # A cancellation ends only the waiting.
                    with LoopWatch():
                        await self._fetcher.close()
            finally:
                STOP_SIGNALS.remove(self.stop)
                if self._lister is not None:
                    await self._lister.close()
            self._tell_what_was_left_out()
        except Exception as error:
            if ended_by is None:
                raise
            log.warning(
                "an error while closing, after the error that ended the job: %s", describe_error(error), exc_info=error
            )
        finally:
            JOBS_IN_THREADS.remove(self)
            if _OWNERS_OF_SINKS.get(id(self.given_sink)) is self:
                del _OWNERS_OF_SINKS[id(self.given_sink)]

    def _tell_what_was_left_out(self) -> None:
        """Log how many records were skipped, or became dead letters, because a script usually exports no metrics.

        The log lines about bad records name only some of them.
        """
        done = self._fetcher.progress()
        if done.skipped or done.dead_letters:
            log.warning(
                "this run left out records: %s skipped, %s written as dead letters",
                f"{done.skipped:,}",
                f"{done.dead_letters:,}",
            )


async def _ended(opening: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
    """Cancel the task that opens the fetcher, and return it when it has ended. The caller then closes everything that was opened."""
    if opening is not None:
        opening.cancel()
        await asyncio.wait([opening])
    return opening
