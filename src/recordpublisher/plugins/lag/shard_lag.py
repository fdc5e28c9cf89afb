"""What one probe of a shard tells: how far its stored position is behind its tip."""

from dataclasses import asdict, dataclass

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.watermark_functions import is_idle
from recordpublisher.publishers.polling.shard_probe import TipDistance
from recordpublisher.publishers.shards import Shard

from .job_snapshot import ShardSnapshot
from .shard_activity import ShardActivity


@dataclass(frozen=True, slots=True)
class ShardProbe:
    """What one probe read of a shard: its state (None: none is stored), what is unread after it, and what arrived lately.

    `activity`: instead of all these, where no positions are stored.
    """

    shard: Shard
    state: ShardState | None = None
    subtask: int | None = None
    tip: TipDistance | None = None
    recent: TipDistance | None = None
    activity: ShardActivity | None = None
    worker: str | None = None
    taken_ms: int | None = None


def probed_shard(probe: ShardProbe, now_ms: int, idle_interval_ms: int, retention_ms: int | None) -> ShardSnapshot:
    """A probed shard; `now_ms` by the service's clock."""
    if probe.activity is not None:
        return _without_positions(probe.shard, probe.activity)
    state, tip = probe.state, probe.tip
    oldest_ms = None if tip is None else tip.oldest_ms
    is_known = state is not None and tip is not None
    lag_ms = max(0, now_ms - oldest_ms) if oldest_ms is not None else 0
    idle_ms = None if state is None or tip is None or tip.has_unread else _since(state.arrival_ms, now_ms)
    has_no_recent = None if probe.recent is None else not probe.recent.has_unread
    return ShardSnapshot(
        stream=probe.shard.stream,
        shard=probe.shard.shard_id,
        subtask=probe.subtask,
        position=_position(state),
        watermark=None if state is None else state.watermark,
        unread=tip.has_unread if tip is not None and is_known else None,
        lag_ms=lag_ms if is_known else None,
        is_idle=has_no_recent if idle_ms is None else is_idle(idle_ms, idle_interval_ms),
        idle_ms=idle_ms,
        loss_ms=None if oldest_ms is None or retention_ms is None else oldest_ms + retention_ms - now_ms,
        worker=probe.worker,
        parents=[*probe.shard.parents],
        checkpoint_age_ms=_since(probe.taken_ms, now_ms),
    )


def _without_positions(shard: Shard, activity: ShardActivity) -> ShardSnapshot:
    rate = activity.records_per_second
    return ShardSnapshot(
        stream=shard.stream,
        shard=shard.shard_id,
        is_idle=None if rate is None else rate == 0,
        idle_ms=activity.tip_age_ms,
        parents=[*shard.parents],
        **asdict(activity),
    )


def lost_shard(key: str, state: ShardState, subtask: int | None) -> ShardSnapshot:
    """A shard that was not read to its end and is no longer listed: an alarm at once."""
    stream, _, shard_id = key.rpartition("/")
    return ShardSnapshot(
        stream=stream,
        shard=shard_id,
        subtask=subtask,
        position=_position(state),
        watermark=state.watermark,
        has_alarm=True,
        alarm="the stream no longer lists it: what was not read is past retention and lost",
        parents=[*state.parents],
    )


def is_overdue(shard: ShardSnapshot, interval_ms: int) -> bool:
    """Whether the oldest unread record is older than the alarm interval. It is an alarm when the position does not move either."""
    return bool(shard.unread) and shard.lag_ms is not None and shard.lag_ms >= interval_ms


def _position(state: ShardState | None) -> str | None:
    return None if state is None or state.position is None else str(state.position)


def _since(moment_ms: int | None, now_ms: int) -> int | None:
    return None if moment_ms is None else max(0, now_ms - moment_ms)
