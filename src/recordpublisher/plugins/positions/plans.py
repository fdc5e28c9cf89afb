"""What the plan of a move says of each shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from recordpublisher.fetcher.shards.shard_state import ShardState


@dataclass(frozen=True, slots=True)
class ImportedPosition:
    """What the job starts from for one shard.

    `found`: what the other client has stored. `is_stored`: False if that is nothing: then the job decides by its own rules.
    """

    shard: str
    found: str
    state: ShardState
    note: str = ""
    is_stored: bool = True


class Row(Protocol):
    """What another client has stored of one shard."""

    @property
    def owner(self) -> str | None:
        """The process that reads the shard."""
        ...

    @property
    def progress(self) -> Any:
        """A sort key: how far the shard was read."""
        ...


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class ExportedRow(Generic[R]):
    """The row to write for one shard, and the row that it replaces."""

    shard: str
    written: R
    replaced: R | None = None
    note: str = ""

    @property
    def goes_back(self) -> bool:
        """Whether the replaced row is ahead of the job: the other client would read records again."""
        return bool(self.replaced is not None and self.replaced.progress > self.written.progress)


def imported_states(positions: Iterable[ImportedPosition]) -> Mapping[str, ShardState]:
    """The states to store. Nothing, where nothing was found: the job knows what to do with a new shard or an ended one."""
    return {position.shard: position.state for position in positions if position.is_stored}
