"""Sink: the contract of what batches are written to. Sinks are adapters in plugins/sinks and in third-party packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple

from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.records import RecordBatch, V
from recordpublisher.publishers.skipped_records import how_to_go_on
from recordpublisher.publishers.user_code import AsyncPort

from .metric_types import SinkMetric

State = Mapping[str, Any]
"""A snapshot: a plain JSON-able mapping (snapshot.py)."""
Rejected = Sequence[tuple[RecordBatch, str]]
"""Records that can never be written, each as a batch of one, with the reason."""
RecordsCall = Callable[[Any], Awaitable[Any]]
"""A call with a record, a list of records or a batch."""
Traced = Callable[[RecordsCall], RecordsCall]
"""Makes of a call the same one with a span around it."""


async def fail_on_rejected_record(record: RecordBatch, reason: str) -> None:
    """The default for a record that a sink rejects (S7). Raises: SinkError that names the record."""
    where, numbers = f"{record.stream}/{record.shard_id}", record.sequence_numbers
    remedy = how_to_go_on(record.stream, record.shard_id, numbers[0])
    raise SinkError(f"record {', '.join(numbers)} of {where} cannot be written: {reason}; {remedy}")


def always() -> bool:
    """The permission to write of a process that nobody can replace."""
    return True


def untraced(call: RecordsCall) -> RecordsCall:
    """The call itself: nothing is traced."""
    return call


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink receives when it is opened: its subtask, the parallelism, and the job's streams.

    - `request_checkpoint()` requests a checkpoint soon, for a sink that keeps rows until then.
    - `await reject(batch, reason)` reports a record, as a batch of one, that can never be written. `flink.deserializer.error` decides what
      becomes of it (S7). When it returns, the sink has no more to do with the record.
    - `await reject_all([(batch, reason)])` does the same for several, whose dead letters are then stored together.
    - `has_dead_letters`: whether the job writes what is rejected to a dead-letter sink; None: not known.
    - `may_write()` is whether the process may write now. With ELASTIC assignment it may not while its last confirmed heartbeat is too old
      (E4). The job asks before each `write`; a sink that sends later, from a queue of its own, asks before it sends.
    - `resume_writing()` tells the job to ask `Sink.has_room` again; also when there was room before.
    - `traced(call)` is the call of a handler with a span of OpenTelemetry around it, for a sink with `traces_writes = False`.
    - `value_type`: the type of the values (`deserializer=Order`), if it is known.
    - `done(shard, sequence_number)`: a sink with `tells_done` is done with one record of a queue, which is acknowledged then. `shard` is
      the `Shard.key`. None: the job reads shards.
    """

    subtask: int = 0
    parallelism: int = 1
    streams: tuple[str, ...] = ()
    request_checkpoint: Callable[[], None] = field(default=_nothing, compare=False)
    reject: Callable[[RecordBatch, str], Awaitable[None]] = field(default=fail_on_rejected_record, compare=False)
    reject_together: Callable[[Rejected, bool], Awaitable[None]] | None = field(default=None, compare=False)
    """What `reject_all` calls; None: it calls `reject` for each."""
    has_dead_letters: bool | None = field(default=None, compare=False)
    may_write: Callable[[], bool] = field(default=always, compare=False)
    resume_writing: Callable[[], None] = field(default=_nothing, compare=False)
    traced: Traced = field(default=untraced, compare=False)
    value_type: Any = None
    done: Callable[[str, str], None] | None = field(default=None, compare=False)

    async def reject_all(self, rejected: Rejected, is_logged: bool = False) -> None:
        """Report records as `reject` does. `is_logged`: the sink has logged them, with what their user's code raised."""
        if self.reject_together is not None:
            await self.reject_together(rejected, is_logged)
            return
        for record, reason in rejected:
            await self.reject(record, reason)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`state` covers exactly the writes that have returned (S1). A transactional sink stores it together with its rows (S6).

    `may_be_partial`: the sink need not wait for everything written, and may return an older state from `flush`. One that the user takes is
    never partial, nor is the job's last one with a fixed number of subtasks.

    `stopped`: the shards that this process gives up: when the job is stopped, or hands them over (ELASTIC). No write of theirs follows.
    Each is given up when `flush` has returned its newest state, or `Sink.has_given_up`.

    `is_last`: the run has ended, and no write follows: nothing need wait for more records.
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
    """What a sink was given and is not done with.

    - `records`: how many.
    - `reason`: the same in words.
    - `call`: stands for the call of user code that has run longest, and is another value when that has returned. None: none runs.
      One that runs for `flink.alarm.interval` raises an alarm (A2).
    - `calls`: how many run.
    - `shards`: the same for each shard (`Shard.key`) that has such records, or records that the sink has dropped (`left`). The job's lag
      and its time until a loss count from them. Empty: the sink does not say.
    - `left`: how many records it has dropped so far, which the next start or the next reader of their shard reads again.
    """

    records: int
    reason: str
    call: object = None
    calls: int = 0
    shards: Mapping[str, UnfinishedShard] = field(default_factory=dict)
    left: int = 0


class Sink(AsyncPort, ABC, Generic[V]):
    """Receives batches. Calls never overlap, and stopping a job never cancels a write.

    A registered sink is built as `Sink(properties)`.
    """

    traces_writes: ClassVar[bool] = True
    """Whether the job puts a span around each write; False for a sink that only queues batches."""
    tells_done: ClassVar[bool] = False
    """Whether it calls `SinkContext.done` for each record. If not, the records of a queue are acknowledged after the `flush` that follows
    their `write`."""

    async def open(self, context: SinkContext) -> State | Sequence[State] | None:
        """Prepare for writing. May return stored state to resume from, one snapshot or several; it takes precedence over `restore=`.

        ELASTIC assignment is refused for a sink that stores state so; see `CommittingSink`.
        """
        return None

    async def stored_positions(self) -> Sequence[State] | None:
        """The stored state that `open` would return, read beside a running job; for `recordpublisher lag`. Default: None, for a sink
        that stores no state."""
        return None

    def destination(self) -> str:
        """Where it writes to, in words, without user and password. With ELASTIC assignment all processes of a group must have the same
        one (E10). Also called before `open`. Default: the name of its class."""
        return type(self).__name__

    def checks(self) -> Checks:
        """What `recordpublisher doctor` asks of a sink that was not opened: for example whether what it writes to can be reached.
        The job may be running. Default: whether the stored positions can be read, where the sink has any."""

        async def positions() -> str:
            return f"reachable, {counted(len(await self.stored_positions() or ()), 'stored snapshot')}"

        return {} if type(self).stored_positions is Sink.stored_positions else {"positions": positions}

    async def check_values(self, context: SinkContext) -> str | None:
        """What `recordpublisher doctor` asks of a sink that was made and not opened: whether `open` would take the values of this job
        (`context.value_type`). Nothing is changed. Default: None, for a sink that takes all values. Raises: what `open` would."""
        return None

    def has_room(self) -> bool:
        """Whether a `write` would not wait for memory of the sink. The job asks before each one.

        Without room it writes nothing, but takes checkpoints and gives up shards, which a `write` that waits would hold up. Call
        `SinkContext.resume_writing` when there is room again. Default: True.
        """
        return True

    @abstractmethod
    async def write(self, batch: RecordBatch[V]) -> None:
        """Write a batch. When this returns, the batch counts as emitted and the position moves past it (S1)."""

    def assigned(self, shards: Collection[str]) -> None:
        """With ELASTIC assignment: these shards (`Shard.key`) are read here from now on; called before their first write.

        Default: nothing.
        """

    def revoked(self, shards: Collection[str]) -> None:
        """With ELASTIC assignment: these shards are read here no more, and no write of theirs follows.

        Their next reader goes on from their last checkpoint. After a hand-over that has everything. After a lost lease it has not: drop
        what is queued of them, since it is written again. Also called while a `write` or `flush` waits. Default: nothing.
        """

    async def watermark(self, watermark: int) -> None:
        """Called when every record below `watermark` (epoch ms) was written, except late ones (W1). Default: nothing.

        A record whose event time is the watermark itself may follow: several records can have one time.
        """

    async def idle(self) -> None:
        """The subtask became idle: do not wait for its watermark (W1). Default: nothing."""

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when everything written is durable; raise when it is not (S6). Default: nothing.

        May return the state to store in place of `checkpoint.state`: one that covers only what is durable, if `may_be_partial`. For each
        shard it has the entry of this or of an earlier checkpoint, or one in between, or none if nothing is durable since the shard is
        read here.
        Also called once before the first write, with the state that the job starts from: this stores a pinned LATEST start (P3).
        """
        return None

    def unfinished(self) -> Unfinished | None:
        """What a `flush` would wait for; asked often, and without a wait. Default: None, for a sink that does not say."""
        return None

    def has_given_up(self, shard: str) -> bool:
        """Whether the older state that the last `flush` returned of a `stopped` shard is its last one. Default: False."""
        return False

    def exported_metrics(self) -> list[SinkMetric]:
        """What `flink.metrics.exporters` export of this sink; called from the event loop, whenever they read. Default: nothing."""
        return []

    async def close(self) -> None:
        """Release what `open` took. Called once, also after an error."""
