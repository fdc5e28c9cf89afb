"""The contract of a sink, which batches are written to. Sinks are adapters in plugins/sinks and in third-party packages.

`CommittingSink` is the contract of sinks whose rows become visible exactly once, when one conditional write (the *entry*) stores
their positions (S6).
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ..publishers.async_port import AsyncPort
from ..publishers.base import Checks
from ..publishers.clock import Clock, SystemClock
from ..publishers.errors import PluginError, SinkError, TransientError
from ..publishers.positions import SequenceNumber, StartingPosition
from ..publishers.properties.retry_properties import LONGEST_PAUSE_MS
from ..publishers.records import RecordBatch, V
from ..publishers.retry import RetryPolicy
from ..publishers.safe_text import counted, repr_of
from ..publishers.shards import Shard
from ..publishers.skipped_records_log import how_to_continue
from ..publishers.user_code import PluginCall
from .conditional_store import ConditionalStore, check_place, write_value
from .metric_types import SinkMetric
from .sink_retries import RetriedCall

T = TypeVar("T")
State = Mapping[str, Any]
"""A snapshot of a job's positions: a mapping that can be written as JSON. A sink stores it unchanged, and returns it from `open`."""
RejectedRecord = tuple[RecordBatch, str]
"""A record that can never be written, and the reason. The record is a batch of one."""
RecordsCall = Callable[[Any], Awaitable[Any]]
"""An async function that takes a record, a list of records or a batch."""
Traced = Callable[[RecordsCall], RecordsCall]
"""A function that returns the given call with a tracing span around it."""


class Sink(AsyncPort, ABC, Generic[V]):
    """Receives the batches of a job. Calls never overlap, and stopping a job never cancels a write.

    A registered sink is built as `Sink(properties)`.

    To add a method of Sink: declare it here with a default that changes nothing, call it in `fetcher/` within `naming_sink` (and in
    `queues/job.py`, if jobs that read a queue call it), and let `testing/sink_contract.py` call it in the order in which a job does.
    """

    traces_writes: ClassVar[bool] = True
    """Whether the job puts a tracing span around each write; False for a sink whose `write` only queues batches."""
    tells_done: ClassVar[bool] = False
    """Whether the sink calls `SinkContext.done` for each record.

    If not, the records of a queue are acknowledged after the `flush` that follows their `write`.
    """

    async def open(self, context: SinkContext) -> State | Sequence[State] | None:
        """Prepare for writing. May return stored state to resume from: one snapshot or several. It takes precedence over `restore=`.

        An earlier process of the job may still run. A sink that stores state must make sure that the earlier one can store nothing more:

        1. `open` writes a new token into the destination before it reads the state.
        2. Each `flush` compares the token in the transaction that stores rows and state. It raises FencedError if it finds another token.

        Otherwise the earlier process could commit rows that the returned state does not cover.

        A sink that returns state cannot be used in a group; see `CommittingSink`.
        """
        return None

    async def stored_positions(self) -> Sequence[State] | None:
        """Return the stored state that `open` would return, without changing anything. The job may be running.

        Return an empty sequence if nothing is stored yet.

        A sink whose `open` returns stored state must have this method. Otherwise commands, and the warning at the start of a job, act as if
        the sink stored no positions. Default: None.
        """
        return None

    def destination(self) -> str:
        """Return where the sink writes to, in words, without user and password.

        All processes of a group must have the same destination. Also called before `open`. Default: the name of the class.
        """
        return type(self).__name__

    def handler_name(self) -> str:
        """Return the name of the user's function that the sink calls, for log lines.

        A worker logs a warning if the sink of another worker of its group has another one. Default: "", for a sink that calls none.
        """
        return ""

    def checks(self) -> Checks:
        """Return the checks of `recordpublisher doctor` for this sink, such as whether its destination can be reached.

        The sink was not opened, and the job may be running. Default: a check that the stored positions can be read, if the sink stores any.
        """

        async def positions() -> str:
            return f"reachable, {counted(len(await self.stored_positions() or ()), 'stored snapshot')}"

        return {} if type(self).stored_positions is Sink.stored_positions else {"positions": positions}

    async def check_values(self, context: SinkContext) -> str | None:
        """Check, for `recordpublisher doctor`, whether `open` would accept the values of this job (`context.value_type`).

        The sink was not opened, and nothing may be changed. Return a sentence for the report, or None for a sink that accepts all values
        (the default). Raises: the errors that `open` would raise.
        """
        return None

    def has_room(self) -> bool:
        """Return whether a `write` would not wait for memory of the sink. The job asks before each write.

        While there is no room, the job writes nothing, but takes checkpoints and releases shards. A waiting `write` would delay both. Call
        `SinkContext.resume_writing` when there is room again. Default: True.
        """
        return True

    @abstractmethod
    async def write(self, batch: RecordBatch[V]) -> None:
        """Write a batch. When this returns, the batch counts as emitted and the position moves past it.

        An error ends the job, whatever its class: call a service that may be unavailable through `SinkContext.retry`.

        A record that is written again has the same `stream`, `shard_id`, `sequence_number` and `sub_sequence_number`; one from a queue may
        have another `shard_id`.
        """

    def assigned(self, shards: Collection[str]) -> None:
        """Called, in a group, when this process begins to read these shards (`Shard.key`), before the first write. Default: do nothing."""

    def revoked(self, shards: Mapping[str, RevocationReason]) -> None:
        """Called, in a group, when this process no longer reads these shards (`Shard.key`), with the reason for each.

        No write of their records follows. Drop their queued records, whatever the reason is: the next reader of a shard resumes from its
        last checkpoint, and writes the records after it again.

        Called in these cases:

        - The lease table no longer gives a shard to this process.
        - The worker was replaced or has failed. Then it loses all of its shards.
        - The job stops, and another process acquires a shard before `close`.

        May be called while a `write` or `flush` waits. Default: do nothing.
        """

    def shard_listed(self, shard: Shard, open_ms: int | None = None) -> None:
        """Called when the job learns of a shard of its streams, whichever process reads the shard. Default: do nothing.

        A job may learn of a shard from the end of its parent. This is then called again when a listing has shown the shard.

        - `open_ms`: a time at which the shard was open (epoch ms). None if no listing has shown the shard as open.
        """

    def shard_started(self, shard: Shard, start: StartingPosition, *, follows_parents: bool) -> None:
        """Called before the first write of a shard's new reader. Every record of the shard from `start` on follows.

        Also called, with TRIM_HORIZON, before the first write after a gap that the job has accepted. Default: do nothing.

        - `start`: the position after the last record that the job has emitted, or where a shard that was never read starts.
        - `follows_parents`: whether the shard was never read, and the job has read its parents. Then TRIM_HORIZON is the true beginning of
          the shard.
        """

    def shard_passed(self, shard: Shard, position: SequenceNumber) -> None:
        """Called when the job has read up to `position` and found no record that it can use, so nothing is written. Default: do nothing."""

    def shard_ended(self, shard: Shard, children: Sequence[Shard]) -> None:
        """Called when the last record of a shard was written. The next checkpoint contains the end of the shard. Default: do nothing."""

    async def watermark(self, watermark: int) -> None:
        """Called when every record below `watermark` (epoch ms) was written, except late ones. Default: do nothing.

        A record whose event time equals the watermark may follow, because several records can have the same time.
        """

    async def idle(self) -> None:
        """Called when every shard of the worker has become idle. Nothing then waits for the worker's watermark. Default: do nothing."""

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when everything that was written is durable. Raise an error if that is not possible. Default: do nothing.

        If `checkpoint.may_be_partial`, the sink may return a state of the durable writes only. It is stored instead of `checkpoint.state`.
        In that state, a shard has its position of this checkpoint, of an earlier one, or one in between. If nothing of a shard has become
        durable since this process began to read it, the shard has no position there.

        Also called once before the first write, with the state that the job starts from. This state has the time that replaced LATEST.

        Not called after a call of this sink has raised an error, unless `may_flush_after_error` returns True. Only a `flush` that raises
        StoreUnavailableError is repeated.

        Raises: FencedError if this sink stores state, and a process that started later has opened a sink with the same destination.
        """
        return None

    def unfinished(self) -> Unfinished | None:
        """Return the records that a `flush` would wait for. This is called often, so it must not wait.

        Default: None, for a sink that does not report them.
        """
        return None

    def may_flush_after_error(self) -> bool:
        """Return whether a last `flush` is safe after an error has ended the run, even if the error came from this sink.

        Such a `flush` must return a state of only what is durable, and must not raise the same error again.

        Default: True if `flush` is not overridden, because each batch is then durable when `write` returns. Otherwise False, because the
        error may have lost older records, and `flush` could report them as durable.
        """
        return type(self).flush is Sink.flush

    def has_stopped(self, shard: str) -> bool:
        """Return whether the sink will finish no more records of a shard. `shard` is one of `Checkpoint.stopped`.

        The state of the shard that the last `flush` returned is then final, even if it is an older one. The shard can be released. Default:
        False.
        """
        return False

    def exported_metrics(self) -> list[SinkMetric]:
        """Return the sink's metrics for `flink.metrics.exporters`. Called in the event loop whenever they are read. Default: none."""
        return []

    async def close(self) -> None:
        """Release what the sink has acquired. Called once, even after an error.

        Also called for a sink whose `open` failed, and for one that was not opened: commands such as `recordpublisher lag` only call
        `stored_positions` or `destination`.
        """


class RevocationReason(Enum):
    """The reason why a process of a group no longer reads a shard (`Sink.revoked`)."""

    ENDED = "the shard was read to its end, and a stored checkpoint says so"
    GIVEN = "another worker acquired it after a stored checkpoint of all records that the sink finished here"
    LOST = "the worker was replaced or has failed: records after the last checkpoint are read again, even if the sink finished them"
    DELETED = "the stream was deleted, so no process reads its records again"


async def fail_on_rejected_record(record: RecordBatch, reason: str) -> None:
    """Raise a SinkError that names the record. This is the default for a record that a sink rejects."""
    where, numbers = f"{record.stream}/{record.shard_id}", record.sequence_numbers
    remedy = how_to_continue(record.stream, record.shard_id, numbers[0])
    raise SinkError(f"record {', '.join(numbers)} of {where} cannot be written: {reason}; {remedy}")


def always_may_write() -> bool:
    """Return True, the permission to write of a process that no other process can replace."""
    return True


def never() -> bool:
    """Return False, the answer of a job that is not stopping and has not lost a shard."""
    return False


def untraced(call: RecordsCall) -> RecordsCall:
    """Return the call itself, because nothing is traced."""
    return call


def _nothing(*_: object) -> None:
    pass


_SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The values that a sink receives when it is opened: the job's streams, and functions of the job that it may call.

    - `request_checkpoint()` requests a checkpoint soon, for a sink that keeps rows until then.
    - `await reject(batch, reason)` reports a record, as a batch of one, that can never be written. `flink.deserializer.error` decides what
      happens to it. When the call returns, the sink has finished the record.
    - `await reject_all([(batch, reason)])` does the same for several records, whose dead letters are then stored together.
    - `count(shard, counter)` counts a record in one of the shard's counters, such as `skipped_records` if the sink itself has skipped it.
      `shard` is the `Shard.key`, and `counter` a field of `ShardMetrics` that is summed over the worker's shards.
    - `has_dead_letters`: whether the job writes rejected records to a dead-letter sink. None if that is not known.
    - `may_write()` returns whether the process may write now. In a group it may not write while its last confirmed heartbeat is too old.
      The job asks before each `write`. A sink that sends later, from a queue of its own, asks before it sends.
    - `resume_writing()` makes the job call `Sink.has_room` again. It may be called even if there was room before.
    - `traced(call)` returns the call of a handler with a span of OpenTelemetry around it, for a sink with `traces_writes = False`.
    - `await retry(call)` calls a service until it answers, for up to `flink.job.max.outage`.
    - `outages`: the time limit and the pauses with which `retry` repeats its call. They are the same for all calls of the job.
    - `drain_seconds`: the time for which `retry` repeats its call after the job began to end (seconds). `is_stopping()` returns whether
      the job has begun to end.
    - `is_lost()` returns whether another process has acquired the shard of the batch that is being written. If so, `retry` makes no
      further call.
    - `value_type`: the type of the values (`deserializer=Order`), if it is known.
    - `value_types`: the known types of the values by stream, if the job has a deserializer for each stream.
    - `clock`: the clock of the job, from which a sink takes the time. A test of the job may run it on virtual time.
    - `done(shard, sequence_number)`: a sink with `tells_done` calls it when it has finished one record of a queue, and for a rejected
      record after `reject` has returned. The record is then acknowledged. `shard` is the `Shard.key`. `done` is None if the job reads
      shards.

    To add a function of SinkContext: declare it here as a field with the default `_nothing`, and pass it in `build_fetcher` of
    `fetcher/shard_fetcher.py` (and in `queues/job.py`, if jobs that read a queue have it). If the function changes which shards may emit,
    `Emitter` passes that to `Alignment.update`.
    """

    streams: tuple[str, ...] = ()
    request_checkpoint: Callable[[], None] = field(default=_nothing, compare=False)
    reject: Callable[[RecordBatch, str], Awaitable[None]] = field(default=fail_on_rejected_record, compare=False)
    reject_together: Callable[[Sequence[RejectedRecord], bool], Awaitable[None]] | None = field(
        default=None, compare=False
    )
    """The function that `reject_all` calls. If it is None, `reject_all` calls `reject` for each record."""
    count: Callable[[str, str], None] = field(default=_nothing, compare=False)
    has_dead_letters: bool | None = field(default=None, compare=False)
    may_write: Callable[[], bool] = field(default=always_may_write, compare=False)
    resume_writing: Callable[[], None] = field(default=_nothing, compare=False)
    traced: Traced = field(default=untraced, compare=False)
    outages: RetryPolicy = field(default=RetryPolicy(0, 300, LONGEST_PAUSE_MS, 1.5, 30_000), compare=False)
    drain_seconds: float = field(default=20.0, compare=False)
    is_stopping: Callable[[], bool] = field(default=never, compare=False)
    is_lost: Callable[[], bool] = field(default=never, compare=False)
    value_type: Any = None
    value_types: Mapping[str, Any] = field(default_factory=dict)
    done: Callable[[str, str], None] | None = field(default=None, compare=False)
    clock: Clock = field(default=_SYSTEM_CLOCK, compare=False)

    async def reject_all(self, rejected: Sequence[RejectedRecord], is_logged: bool = False) -> None:
        """Report records as `reject` does. `is_logged`: the sink has already logged them, with the error of the user's code."""
        if self.reject_together is not None:
            await self.reject_together(rejected, is_logged)
            return
        for record, reason in rejected:
            await self.reject(record, reason)

    async def retry(
        self,
        call: Callable[[], Awaitable[T]],
        on: type[Exception] | tuple[type[Exception], ...] = TransientError,
        service: str = "the sink's service",
    ) -> T:
        """Call until the call succeeds, and return its result. Use it in `open`, `write` and `flush`, which the job does not repeat.

        The pauses between the calls are random, at most 0.3 s at first and 5 s later. The log has a line when the calls begin to fail, one
        each minute, and one when they succeed again. If the service says how long to wait, raise a TransientError (or ThrottledError) with
        `retry_after`: the next call is then made no earlier, and a stop does not wait for it. Do not wait in `call` itself.

        In a group, `call` is made again only while the process may write (`may_write`).

        - `call`: makes the request. It may be called again although the service has received an earlier request. Until it succeeds,
          `write` gets no other batch.
        - `on`: the classes of errors after which a call may succeed later, such as `httpx.TransportError`. TransientError is always one.
        - `service`: what is called, for the log and the error.

        Raises: RetriesExhaustedError, caused by the last error, if the calls have failed for `flink.job.max.outage`, or if the job began to
        end `flink.job.drain.timeout` ago. The next start then reads the records again. FencedError if another process has acquired the
        shard of the batch. Every other error at once.
        """
        return await RetriedCall(self, call, on, service).run()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint that a sink takes part in. `state` covers exactly the writes that have returned.

    A transactional sink stores `state` together with its rows.

    - `may_be_partial`: whether the sink may return an older state from `flush`, instead of waiting for everything written. It is False for
      a checkpoint that the user takes, and for the last one of a job that runs alone.
    - `stopped`: the shards that this process releases, because the job is stopped, or transfers them to other processes of its group. No
      write of these shards follows. Each is released when `flush` has returned its newest state, or when `Sink.has_stopped` returns True
      for it.
    - `is_last`: whether the run has ended and no write follows, so that a sink need not wait for more records.
    """

    state: State
    may_be_partial: bool = False
    stopped: Collection[str] = ()
    is_last: bool = False


class UnfinishedShard(NamedTuple):
    """The records of one shard that a sink has not finished: how many, and when the oldest of them arrived (epoch ms)."""

    records: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The records that a sink has received and not finished.

    - `records`: number of these records.
    - `reason`: what the sink waits for, in words, for alarms.
    - `call`: identifies the call of user code that has run longest. It changes when that call has returned, and is None if no call runs. A
      call that runs for `flink.alarm.interval` raises an alarm, and a stop waits for it for `flink.job.drain.timeout`.
    - `calls`: number of calls that run. If positions are stored, a stop waits for all of them for `flink.job.drain.timeout`.
    - `shards`: the unfinished records of each shard (`Shard.key`) that has some, or of which the sink has dropped some (`left`). They count
      for the job's lag, and for the time until records are lost. Empty if the sink does not report them.
    - `left`: number of records that the sink has dropped so far. The next start, or the next reader of their shard, reads them again.
    - `waiting`: number of records whose call has failed and will be repeated after a pause. A stop waits for them as for calls.
    """

    records: int
    reason: str
    call: object = None
    calls: int = 0
    shards: Mapping[str, UnfinishedShard] = field(default_factory=dict)
    left: int = 0
    waiting: int = 0


# CommittingSink: sinks whose rows become visible exactly once, because one write stores the positions and commits the rows (S6, E1).


class CommitNumber(NamedTuple):
    """The number of one call of `stage`, unique for its writer. `n` is from 1 to 2**63 - 1, and only grows, even over restarts.

    `writer` is `job/life`: the name of the job, and the name of one run of a worker process (see `CommittingSink`). No later run has the
    same name. A table that stores the last number of each writer can tell which commits it already has.
    """

    writer: str
    n: int


@dataclass(frozen=True, slots=True)
class Staged:
    """Everything that one call of `stage` has made durable: a staged item, such as files or the rows of a transaction.

    - `content`: plain JSON with everything that `publish` needs in any process. It is stored in the entry that commits the item.
    - `before`: the positions committed before this item, in the format of the entry. It is for sinks that can take back a commit.
    - `files`, `size`: number of files, and their bytes. They are for metrics, and are not in the entry.
    """

    number: CommitNumber
    content: Mapping[str, Any]
    before: Any = field(default=None, compare=False, kw_only=True)
    files: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)


class Leftover(NamedTuple):
    """A file or object that `stage` has written, and that perhaps no commit contains.

    - `size`: bytes.
    - `written`: when it was written (epoch seconds).
    - `life`: the name of the run of a worker process that has written it (see `CommittingSink`).
    - `upload`: the id of an unfinished upload of the object, or None if the object itself exists.
    """

    name: str
    size: int
    written: float
    life: str
    upload: str | None = None


class CommittingSink(Sink[V]):
    """A sink that writes in three steps: stage the rows, commit them together with their positions, and publish them.

    - *Stage*: make the rows durable, and not visible yet.
    - *Commit*: store an *entry*: a document with the positions of one worker, and with the staged items that belong to them. The write is
      conditional, so a process that was replaced can no longer commit. A commit without an answer is repeated unchanged until its outcome
      is known.
    - *Publish*: make the rows of committed items visible, and the rows that `flush` has staged without a commit.

    The argument `life` is the name of one *run* of a worker process. A job that runs alone begins a run at each start. In a group, a
    process begins a run when it joins the group, and again when its worker was replaced. The name has at most 200 letters, digits and
    `_.-`, and is never used again. `open` begins a run with a random name, which `flush` uses.

    Calls of `write`, `begin` and `stage` never overlap. `commit`, `publish`, `discard`, `end_life` and `revoked` may be called while they
    run.
    """

    can_take_back: ClassVar[bool] = False
    """Whether a commit that cannot be published can be undone (`take_back`)."""
    _flushed: tuple[Staged, ...] = ()
    _flush_number = CommitNumber("", 0)

    def entries(self) -> ConditionalStore | None:
        """Return the store of entries in the destination of the rows, or None if the entries are in the store of `flink.state.uri`.

        In the destination, all jobs that write there find each other's entries. The method returns the same object at each call, even
        before `open`. The job closes it.
        """
        return None

    def target(self) -> str:
        """Return the name of the destination, which is stored in an entry. A job refuses entries of another target, because they belong to
        other rows.

        Entries with an empty target are not refused. Default: `destination`, or an empty text if the entries are stored next to the rows.
        """
        return self.destination() if self.entries() is None else ""

    @abstractmethod
    async def begin(self, life: str) -> None:
        """Begin the run `life` of a worker process, and drop everything that this sink object has written or staged and not committed.

        The names of everything that is staged from now on begin with `life`.
        """

    @abstractmethod
    async def stage(self, number: CommitNumber) -> Staged | None:
        """Make the rows written since the last call durable, but not visible. Return None if there are none.

        Rejected records are reported (`SinkContext.reject_all`) before this returns. Each number is used for one call only. After
        StoreUnavailableError, or a cancellation, the rows are kept, and the next call stages them again with a higher number.

        Raises: StoreUnavailableError if the destination cannot be reached now; SinkError if staging can never succeed, which ends the
        worker or the job.
        """

    async def commit(
        self, store: ConditionalStore, name: str, value: bytes, expected: str | None, staged: Sequence[Staged]
    ) -> str:
        """Store `value` as the entry `name` in `store`, and return its new version. `staged` are the items that the entry commits.

        - `expected`: the version that must be stored now, or None if no entry may be stored.

        A database writes the rows of `staged` in the same transaction. If `value` is already stored, it writes nothing. The job calls again
        with the same arguments until there is an answer, because an earlier attempt may take effect at any time.

        Raises: ConflictError, with the stored value, if another version is stored; StoreUnavailableError if the store cannot be reached
        now; StateError if waiting does not help.
        """
        return await write_value(store, name, value, expected)

    @abstractmethod
    async def publish(self, staged: Sequence[Staged]) -> None:
        """Make staged items visible, in this order, and each only once, even if this is called again for the same items.

        Another process may be publishing the same items now. A database whose `commit` has written the rows has nothing to do for them.

        The default `flush` calls this with items that no `commit` has written: dead letters, and the records of a queue. A database must
        write the rows of these items here, which it still has in memory, or override `flush`.

        Raises: StoreUnavailableError if the destination cannot be reached now (the job calls again); StateError if a staged item is missing
        and was not published.
        """

    async def unpublished(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return the items that certainly have no visible rows, as far as the destination can prove it. Also called before `open`.

        Default: no items, because nothing can be proved. Raises: StoreUnavailableError if the destination cannot be reached now; StateError
        if it cannot be read.
        """
        return ()

    async def take_back(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Undo commits that are not published yet: make sure that no process publishes these items, or later ones of their writers.

        Return the items that are not published. `publish` raises StateError for them from now on. The job then stores the entries again
        without these items. It calls this again until the entries are stored. Raises: the errors of `unpublished`.
        """
        return ()

    async def writers(self) -> Sequence[str]:
        """Return the names of the writers (`CommitNumber.writer`) that have rows here, as far as the destination knows them.

        Called once, before the first `begin` of a job that has no positions yet. Default: no names.
        """
        return ()

    @abstractmethod
    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete the items that ended runs have staged, except the items in `kept`. Entries still name those items.

        `has_ended(name)` returns whether the run of a worker process with this name has ended. A process that was replaced may still stage
        items after this call. They stay until the next one.

        Raises: StoreUnavailableError if the destination cannot be reached now.
        """

    async def forget_ended_lives(self, is_forgotten: Callable[[str], bool]) -> bool:
        """Delete what the destination keeps of ended runs, such as their last commit numbers. Return whether nothing is left to delete.

        `is_forgotten(name)` returns whether the run of a worker process with this name has ended, and no entry names it. Only the data of
        such runs may be deleted. If the result is False, a later commit deletes the rest, and in a group this is called again. Default:
        return True.

        Raises: StoreUnavailableError if the destination cannot be reached now; StateError if it cannot be read.
        """
        return True

    async def leftovers(self, kept: Sequence[Staged]) -> Sequence[Leftover]:
        """Return the files and objects that any run has staged, except those of the items in `kept`.

        The result may contain items that are being staged now. Also called before `open`. Default: nothing, for a sink that stages rows
        only in its destination. Raises: StoreUnavailableError if the destination cannot be reached now; StateError if it cannot be read.
        """
        return ()

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete these leftovers; some may already be gone.

        Raises: StoreUnavailableError if the destination cannot be reached now; StateError if it cannot be changed.
        """

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Stage what was written, and publish it at once, without positions (at least once).

        This is for a sink whose positions are not stored, such as a dead-letter sink. A job that commits never calls it. Raises: the errors
        of `stage` and `publish`.
        """
        writer, n = self._flush_number
        self._flush_number = number = CommitNumber(writer or f"flush/{secrets.token_hex(8)}", n + 1)
        staged = await self.stage(number)
        if staged is not None:
            self._flushed = (*self._flushed, staged)
        await self.publish(self._flushed)
        self._flushed = ()

    async def end_life(self, life: str) -> None:
        """Release the locks that the run `life` of a worker process still holds, for example in a database session.

        The process of that run may be suspended within `commit`. After this call, the process that made the call changes the entry of the
        run, so that the run can no longer commit.
        """

    def checks(self) -> Checks:
        """Return a check that the entries can be read, if they are stored next to the rows."""
        entries = self.entries()

        async def positions() -> str:
            assert entries is not None
            stored = len(await entries.list_names(""))
            return (
                f"reachable, {counted(stored, 'document')} with positions"
                if stored
                else "reachable, no positions stored yet"
            )

        return {} if entries is None else {"positions": positions}


def entry_store_of(sink: Sink | None) -> ConditionalStore | None:
    """Return the store in which a sink keeps positions (entries) next to its rows, or None if it keeps none there.

    Raises: PluginError if the sink returns something else; the sink's own error, with a note that names the method.
    """
    if not isinstance(sink, CommittingSink):
        return None
    name = type(sink).__name__
    with PluginCall(sink, "entries", note=f"the sink {name} failed in `entries`", is_watched=False):
        found: Any = sink.entries()
    if found is not None and not isinstance(found, ConditionalStore):
        raise PluginError(f"`{name}.entries` returned {repr_of(found)}: return a ConditionalStore, or None")
    return check_place(found)


def stores_positions(sink: type[Sink]) -> bool:
    """Return whether sinks of this class store a job's positions next to their rows."""
    if issubclass(sink, CommittingSink):
        return sink.entries is not CommittingSink.entries
    return sink.stored_positions is not Sink.stored_positions
