"""The Sink port: where emitted batches go. Sinks are adapters in plugins/sinks and in third-party packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import RecordBatch

State = Mapping[str, Any]
"""A snapshot: a plain JSON-able mapping (snapshot.py)."""


async def refuse(record: RecordBatch, reason: str) -> None:
    """What becomes of a record that a sink rejects where nobody says otherwise (S7). Raises: SinkError that names it."""
    where = f"{record.stream}/{record.shard_id}"
    raise SinkError(f"record {', '.join(record.sequence_numbers)} of {where} cannot be written: {reason}")


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink learns when it is opened: which subtask of how many it serves, and of which streams.

    `request_checkpoint()` asks for a checkpoint soon: a sink that keeps rows until then bounds what waits. `await reject(batch, reason)`
    gives away a record, as a batch of one, that can never be written: it fails the job, is skipped and counted, or goes to the
    dead-letter sink, as `flink.deserializer.error` says (S7). When it returns, the sink is rid of the record.
    """

    subtask: int = 0
    parallelism: int = 1
    streams: tuple[str, ...] = ()
    request_checkpoint: Callable[[], None] = field(default=lambda: None, compare=False)
    reject: Callable[[RecordBatch, str], Awaitable[None]] = field(default=refuse, compare=False)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`state` covers exactly the writes that have returned (S1); a transactional sink stores it together with its rows (S6)."""

    state: State


class Sink(ABC):
    """Takes batches. Calls never overlap, and stopping a job never cancels a write.

    A registered sink is built as `Sink(properties)`.
    """

    async def open(self, context: SinkContext) -> State | Sequence[State] | None:
        """Get ready. May answer stored state to resume from, one snapshot or several, which then wins over `restore=`."""
        return None

    @abstractmethod
    async def write(self, batch: RecordBatch) -> None:
        """Take a batch; when this returns, the batch counts as emitted and the position moves behind it (S1)."""

    async def watermark(self, watermark: int) -> None:  # noqa: B027 - optional on purpose
        """Every record up to `watermark` (epoch ms) was written, late ones aside (W1). Default: nothing."""

    async def idle(self) -> None:  # noqa: B027 - optional on purpose
        """The subtask turned idle: do not wait for its watermark (W1). Default: nothing."""

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:  # noqa: B027 - optional on purpose
        """Return when everything written is safe; raise when something is not (S6). Default: nothing.

        Called once before the first write, with the state that the job starts from: a pinned LATEST start is kept by then (P3).
        """

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what `open` took. Called once, also after an error."""
