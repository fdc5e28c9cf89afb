"""Seeding: where each listed shard starts, fresh or from restored state (P3, S5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..publishers.errors import DataLossError
from ..publishers.positions import StartingPosition
from ..publishers.shards import Shard
from .shard_state import ShardState
from .snapshot import Restored
from .unread_children import with_unread_children


def seeded_states(listed: Iterable[Shard], restored: Restored, start: StartingPosition) -> dict[str, ShardState]:
    """The state to start from for every listed shard, whoever owns it.

    Fresh: every shard at the start. Restored: a known shard at its state; an ancestor of a known shard that the state dropped is
    finished; a descendant of a known shard begins at TRIM_HORIZON, as does a new root of a known stream; a new stream begins at the start.
    """
    shards = {shard.key: shard for shard in listed}
    finished = _ancestors(restored.shards, shards) - set(restored.shards)
    return {
        key: restored.shards.get(key) or _state_of_unknown(shard, key in finished, restored, start)
        for key, shard in shards.items()
    }


def vanished(listed: Iterable[Shard], restored: Restored, streams: Iterable[str]) -> list[str]:
    """Restored shards that were not read to their end and that nobody lists any more: past retention, a gap (S5)."""
    known = {shard.key for shard in listed}
    wanted = set(streams)
    return [
        key
        for key, state in restored.shards.items()
        if not state.ended and key not in known and key.rsplit("/", 1)[0] in wanted
    ]


def past_retention(
    listed: Iterable[Shard], restored: Restored, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Restored shards whose last record and last confirmed tip are both older than what their stream retains, and those
    whose children came and went unread (S5)."""
    listed, lost = tuple(listed), []
    for shard in listed:
        state, oldest = restored.shards.get(shard.key), oldest_retained_ms.get(shard.stream)
        if state is None or state.ended or oldest is None:
            continue
        seen = [moment for moment in (state.arrival_ms, state.tip_ms) if moment is not None]
        if seen and max(seen) < oldest:
            lost.append(shard.key)
    return lost + with_unread_children(listed, restored, oldest_retained_ms)


def data_loss(keys: list[str], restored: Restored) -> DataLossError:
    """The error that names the gap."""
    places = ", ".join(f"{key} after {restored.shards[key].position or 'its start'}" for key in sorted(keys))
    return DataLossError(
        f"records are past retention and lost: {places}. Set flink.state.dataloss=CONTINUE to go on without them"
    )


def _state_of_unknown(shard: Shard, is_finished: bool, restored: Restored, start: StartingPosition) -> ShardState:
    if is_finished:
        return ShardState(start, ended=True)
    if shard.stream in restored.streams:
        return ShardState(StartingPosition.trim_horizon())
    return ShardState(start)


def _ancestors(keys: Iterable[str], shards: Mapping[str, Shard]) -> set[str]:
    """Every listed ancestor of these shards."""
    found: set[str] = set()
    waiting = [key for key in keys if key in shards]
    while waiting:
        shard = shards[waiting.pop()]
        parents = {f"{shard.stream}/{parent}" for parent in shard.parents} & set(shards)
        waiting += parents - found
        found |= parents
    return found
