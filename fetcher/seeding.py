"""Seeding: where each listed shard starts, fresh or from restored state (P3, S5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..publishers.errors import DataLossError
from ..publishers.positions import StartingPosition
from ..publishers.shards import Shard
from .shard_state import ShardState
from .snapshot import Restored


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
        if not state.ended and key not in known and _stream_of(key) in wanted
    ]


def past_retention(
    listed: Iterable[Shard], restored: Restored, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Restored shards whose last record and last confirmed tip are both older than what their stream retains, and childless ones (S5)."""
    shards, lost = tuple(listed), []
    for shard in shards:
        state, oldest = restored.shards.get(shard.key), oldest_retained_ms.get(shard.stream)
        if state is None or state.ended or oldest is None:
            continue
        trace = _last_trace_ms(state)
        if trace is not None and trace < oldest:
            lost.append(shard.key)
    return lost + childless(shards, restored, oldest_retained_ms)


def childless(shards: Sequence[Shard], restored: Restored, oldest_retained_ms: Mapping[str, int | None]) -> list[str]:
    """Restored shards that were read to their end and whose children nobody knows: they came and went unread, a gap (S5).

    Nobody lists such a shard any more, and everything that the state says of its stream is older than what is retained. A younger
    state may only have dropped the children before it dropped their parent.
    """
    known = {shard.key for shard in shards} | {
        f"{shard.stream}/{parent}" for shard in shards for parent in shard.parents
    }
    known |= {f"{_stream_of(key)}/{parent}" for key, state in restored.shards.items() for parent in state.parents}
    traces: dict[str, int] = {}
    for key, state in restored.shards.items():
        traces[_stream_of(key)] = max(traces.get(_stream_of(key), 0), _last_trace_ms(state) or 0)
    old = {stream for stream, trace in traces.items() if 0 < trace < (oldest_retained_ms.get(stream) or 0)}
    return [
        key for key, state in restored.shards.items() if state.ended and key not in known and _stream_of(key) in old
    ]


def data_loss(keys: list[str], restored: Restored) -> DataLossError:
    """The error that names the gap."""
    places = ", ".join(f"{key} after {restored.shards[key].position or 'its start'}" for key in sorted(keys))
    return DataLossError(
        f"records are past retention and lost: {places}. Set flink.state.dataloss=CONTINUE to go on without them"
    )


def _last_trace_ms(state: ShardState) -> int | None:
    """When something was last seen of a shard: its last record's arrival, or its tip."""
    return max((moment for moment in (state.arrival_ms, state.tip_ms) if moment is not None), default=None)


def _stream_of(key: str) -> str:
    return key.rsplit("/", 1)[0]


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
