"""The Sink port: where emitted batches go. Sinks are adapters in plugins/sinks and in third-party packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..publishers.records import RecordBatch

State = Mapping[str, Any]
"""A snapshot: a plain JSON-able mapping (snapshot.py)."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink learns when it is opened: which subtask of how many it serves, and of which streams."""

    subtask: int = 0
    parallelism: int = 1
    streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`state` covers exactly the writes that have returned (S1); a transactional sink stores it together with its rows (S6)."""

    state: State


class Sink(ABC):
    """Takes batches. Calls never overlap, and stopping a job never cancels a write.

    A registered sink is built as `Sink(properties)`.
    """

    async def open(self, context: SinkContext) -> State | None:
        """Get ready. May answer stored state to resume from, which then wins over `restore=`."""
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
