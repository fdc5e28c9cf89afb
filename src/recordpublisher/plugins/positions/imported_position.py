"""ImportedPosition: what the plan of an import says of one shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recordpublisher.fetcher.shards.shard_state import ShardState


@dataclass(frozen=True, slots=True)
class ImportedPosition:
    """What the job starts from for one shard.

    `found`: what the other side has stored. `is_stored`: False if that is nothing: then the job decides by its own rules.
    """

    shard: str
    found: str
    state: ShardState
    note: str = ""
    is_stored: bool = True


def imported_states(positions: Iterable[ImportedPosition]) -> Mapping[str, ShardState]:
    """The states to store. Nothing, where nothing was found: the job knows what to do with a new shard or an ended one."""
    return {position.shard: position.state for position in positions if position.is_stored}
