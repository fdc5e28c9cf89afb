"""Seeding: where each listed shard starts, fresh or from restored state (P3, S5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, is_listing_older_than

from ..shards.lineage import ancestor_keys, parent_keys
from ..shards.shard_state import ShardState
from ..watermark_rules import inherited_watermark
from .snapshot import RestoredState


def initial_states(listed: Iterable[Shard], restored: RestoredState, start: StartingPosition) -> dict[str, ShardState]:
    """The state to start from for every listed shard, whoever owns it.

    Fresh: every shard at the start. Restored: a known shard at its state; an ancestor of a started shard that the state dropped is
    finished (one of a shard that waits may be what it waits for); a descendant of a known shard begins at
    TRIM_HORIZON, as does a new root of a known stream; a new stream begins at the start.
    """
    shards = {shard.key: shard for shard in listed}
    started = [key for key, state in restored.shards.items() if not state.waiting]
    finished = ancestor_keys((shards[key] for key in started if key in shards), shards) - set(restored.shards)
    states = {
        key: restored.shards.get(key) or _state_of_unknown(shard, key in finished, restored, start)
        for key, shard in shards.items()
    }
    return {key: _with_inherited(state, shards[key], states) for key, state in states.items()}


def shards_no_longer_listed(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Restored shards that were not read to their end and that nobody lists any more: past retention, a gap (S5)."""
    known = {shard.key for shard in listed}
    wanted = set(streams)
    return [
        key
        for key, state in restored.shards.items()
        if not state.ended and key not in known and key.rsplit("/", 1)[0] in wanted
    ]


def shards_missing_from_listing(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Restored shards, ended ones included, that are younger than anything listed of their stream: the listing is an old one."""
    listed, wanted = list(listed), set(streams)
    known = {shard.key for shard in listed}
    places = [key.rpartition("/") for key in restored.shards if key not in known]
    unknown = [Shard(stream, shard_id) for stream, _, shard_id in places]
    return [shard.key for shard in unknown if shard.stream in wanted and is_listing_older_than(shard, listed)]


def shards_past_retention(
    listed: Iterable[Shard], restored: RestoredState, oldest_retained_ms: Mapping[str, int | None]
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
    return lost + shards_with_unread_children(listed, restored, oldest_retained_ms)


def data_loss_error(keys: list[str], restored: RestoredState) -> DataLossError:
    """The error that names the gap."""
    places = ", ".join(f"{key} after {restored.shards[key].position or 'its start'}" for key in sorted(keys))
    return DataLossError(
        f"records are past retention and lost: {places}. Set flink.state.dataloss=CONTINUE to go on without them"
    )


def _state_of_unknown(shard: Shard, is_finished: bool, restored: RestoredState, start: StartingPosition) -> ShardState:
    if is_finished:
        return ShardState(start, ended=True)
    if shard.stream in restored.streams:
        return ShardState(StartingPosition.trim_horizon())
    return ShardState(start)


def _with_inherited(state: ShardState, child: Shard, states: Mapping[str, ShardState]) -> ShardState:
    """A child that may start now begins at the lowest watermark of its parents, also when they ended in another life of the job (W5)."""
    parents = [states[key] for key in parent_keys(child) if key in states]
    watermark = inherited_watermark(parent.watermark for parent in parents)
    if state.watermark is not None or state.ended or watermark is None or not all(parent.ended for parent in parents):
        return state
    return replace(state, watermark=watermark)


def shards_with_unread_children(
    listed: Sequence[Shard], restored: RestoredState, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Restored shards that were read to their end and whose children nobody knows.

    Nobody lists such a shard any more, and everything that the state says of its stream is older than what is retained. A younger
    state may only have dropped the children before it dropped their parent.
    """
    known = {shard.key for shard in listed}
    known |= {parent for shard in listed for parent in parent_keys(shard)}
    known |= {f"{_stream_of(key)}/{parent}" for key, state in restored.shards.items() for parent in state.parents}
    traces: dict[str, int] = {}
    for key, state in restored.shards.items():
        traces[_stream_of(key)] = max(traces.get(_stream_of(key), 0), _last_trace_ms(state))
    old = {stream for stream, trace in traces.items() if 0 < trace < (oldest_retained_ms.get(stream) or 0)}
    return [
        key for key, state in restored.shards.items() if state.ended and key not in known and _stream_of(key) in old
    ]


def _last_trace_ms(state: ShardState) -> int:
    """When something was last seen of a shard: its last record's arrival, or its tip; 0 when nothing was."""
    return max(state.arrival_ms or 0, state.tip_ms or 0)


def _stream_of(key: str) -> str:
    return key.rsplit("/", 1)[0]
