"""Decides in which state each listed shard starts, restored or new, and whether records were lost in the meantime (P3, S5)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, is_listing_older_than, stream_of

from ..shards.lineage import Children, finished_ancestors, parent_keys, parents_ended, reachable
from ..shards.retention_check import Gap, RetentionCheck, may_have_gap
from ..shards.shard_state import ShardState, latest
from ..watermark_functions import inherited_watermark
from .snapshot import RestoredState
from .starts import Starts


def initial_states(listed: Iterable[Shard], restored: RestoredState, starts: Starts) -> dict[str, ShardState]:
    """Return the state from which each listed shard starts, for all subtasks.

    - A shard with restored state resumes there.
    - An ancestor of a started shard counts as finished, because its state was dropped after its end. An ancestor of a shard that has not
      started does not count as finished, because that shard may be waiting for it.
    - Any other shard of a stream with restored state is new and starts at TRIM_HORIZON.
    - A shard of a stream without restored state starts as `starts` says. A shard that is named there counts as started for its ancestors,
      and its descendants start at TRIM_HORIZON.
    """
    shards, read_streams = {shard.key: shard for shard in listed}, restored.streams
    new_streams = [shard for shard in shards.values() if shard.stream not in read_streams]
    named = {shard.key: starts.of(shard) for shard in new_streams if shard.shard_id in starts.by_shard}
    begun = {**named, **restored.shards}
    finished = _finished_ancestors(shards, begun)
    children = Children(new_streams if named else ())
    following = reachable(named, lambda key: [child.key for child in children.of(key)])

    def new_state(shard: Shard) -> ShardState:
        if shard.key in finished:
            return ShardState(starts.default, ended=True)
        if shard.stream in read_streams or shard.key in following:
            return ShardState(StartingPosition.trim_horizon())
        return starts.of(shard)

    states = {key: begun.get(key) or new_state(shard) for key, shard in shards.items()}
    return {
        key: _with_seen(_with_inherited(state, shards[key], states), shards[key], restored)
        for key, state in states.items()
    }


def shards_no_longer_listed(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Return restored shards that were not read to their end and are no longer listed: their records are past retention (S5)."""
    known, wanted = {shard.key for shard in listed}, set(streams)
    unfinished = [key for key, state in restored.shards.items() if not state.ended and key not in known]
    return [key for key in unfinished if stream_of(key) in wanted]


def unlisted_states(listed: Iterable[Shard], restored: RestoredState) -> dict[str, ShardState]:
    """Return what is known of shards that the listing lacks, in case a later listing has them.

    It is their restored state, or the state of a finished shard.
    """
    shards = {shard.key: shard for shard in listed}
    finished = ShardState(StartingPosition.trim_horizon(), ended=True)
    known = dict.fromkeys(_finished_ancestors(shards, restored.shards), finished) | dict(restored.shards)
    return {key: state for key, state in known.items() if key not in shards}


def missing_shards(
    listed: Iterable[Shard], ours: Iterable[Shard], restored: RestoredState, streams: Iterable[str]
) -> set[str]:
    """Return the shards that the listing lacks: restored ones, and parents for which shards of this subtask would wait (S2, S5).

    These shards are past retention, or the listing is inconsistent.
    """
    shards, wanted = {shard.key: shard for shard in listed}, set(streams)
    of_streams = {key for key in restored.shards if stream_of(key) in wanted}
    unread = [shard for shard in ours if shard.key not in restored.shards or restored.shards[shard.key].waiting]
    parents = {key for shard in unread for key in parent_keys(shard)} - _finished_ancestors(shards, restored.shards)
    return (of_streams | parents) - shards.keys()


def shards_missing_from_listing(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Return restored shards that are younger than every listed shard of their stream: the listing is older than the state.

    Kinesis numbers shards by creation, and retention removes the oldest first, so a complete listing never lacks the youngest shards.
    """
    listed, wanted = list(listed), set(streams)
    known = {shard.key for shard in listed}
    places = [key.rpartition("/") for key in restored.shards if key not in known]
    unknown = [Shard(stream, shard_id) for stream, _, shard_id in places]
    return [shard.key for shard in unknown if shard.stream in wanted and is_listing_older_than(shard, listed)]


def last_seen_ms(state: ShardState) -> int:
    """Return the time (epoch ms) until which nothing of the shard was lost, or 0 if nothing is known.

    It is the latest of the arrival of its last record, its last read at the tip, and what is known of the beginning of a shard that was
    never read.
    """
    return latest(state.arrival_ms, state.tip_ms, state.seen_ms) or 0


def old_shards(restored: RestoredState, now_ms: int) -> set[str]:
    """Return restored shards, including ended ones, that were last read almost a day ago. The others have lost nothing (S5)."""
    return {key for key, state in restored.shards.items() if may_have_gap(last_seen_ms(state) or None, now_ms)}


async def shards_past_retention(
    shards: Iterable[Shard], restored: RestoredState, retention: RetentionCheck
) -> list[str]:
    """Return the keys of those restored shards that are not at their end and whose unread records are lost (S5)."""
    states = [(shard, restored.shards[shard.key]) for shard in shards]
    unfinished = [(shard, state) for shard, state in states if not state.ended]
    gaps = await asyncio.gather(
        *(retention.gap_after(shard, state.position, last_seen_ms(state)) for shard, state in unfinished)
    )
    return [shard.key for (shard, _), gap in zip(unfinished, gaps, strict=True) if gap is Gap.LOST]


def data_loss_error(keys: list[str], restored: RestoredState) -> DataLossError:
    """Return the error that names the shards with lost records."""
    places = ", ".join(f"{key} after {restored.shards[key].position or 'its start'}" for key in sorted(keys))
    return DataLossError(
        f"records are past retention and lost: {places}. Set flink.state.dataloss=CONTINUE to continue without them"
    )


def _finished_ancestors(shards: Mapping[str, Shard], begun: Mapping[str, ShardState]) -> set[str]:
    started = [shards[key] for key, state in begun.items() if not state.waiting and key in shards]
    return finished_ancestors(started, shards) - begun.keys()


def _with_inherited(state: ShardState, child: Shard, states: Mapping[str, ShardState]) -> ShardState:
    """Start a child that may start now at the lowest watermark of its parents, even if they ended in an earlier run of the job (W5)."""
    parents = [states[key] for key in parent_keys(child) if key in states]
    watermark = inherited_watermark(parent.watermark for parent in parents)
    if state.watermark is not None or state.ended or watermark is None or not is_startable(child, states):
        return state
    return replace(state, watermark=watermark)


def _with_seen(state: ShardState, child: Shard, restored: RestoredState) -> ShardState:
    """Note that a child that was never read began after its parents were last known to be open (S5).

    The parents may no longer be listed.
    """
    if state.ended or state.position is not None or state.seen_ms is not None:
        return state
    parents = (restored.shards[key] for key in parent_keys(child) if key in restored.shards)
    seen_ms = latest(*(parent.seen_ms for parent in parents if parent.ended))
    return state if seen_ms is None else replace(state, seen_ms=seen_ms)


def is_startable(shard: Shard, states: Mapping[str, ShardState]) -> bool:
    """Return whether every parent was read to its end, according to the states of a restored job (S2)."""
    return parents_ended(parent_keys(shard), lambda parent: parent not in states or states[parent].ended)


def shards_with_unread_children(
    listed: Sequence[Shard], restored: RestoredState, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Return restored shards that were read to their end and whose children are unknown: the children may have come and gone unread.

    This is so if the shard is no longer listed, and the whole state of its stream is older than the stream's oldest record. In a younger
    state the children may have been dropped before their parent.
    """
    known = {shard.key for shard in listed}
    known |= {key for shard in listed for key in parent_keys(shard)}
    known |= {f"{stream_of(key)}/{parent}" for key, state in restored.shards.items() for parent in state.parents}
    last_seen: dict[str, int] = {}
    for key, state in restored.shards.items():
        last_seen[stream_of(key)] = max(last_seen.get(stream_of(key), 0), last_seen_ms(state))
    old = {stream for stream, seen in last_seen.items() if 0 < seen < (oldest_retained_ms.get(stream) or 0)}
    return [key for key, state in restored.shards.items() if state.ended and key not in known and stream_of(key) in old]
