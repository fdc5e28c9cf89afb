"""ShardLag: how far one shard's stored position is behind its tip, computed from one probe."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.shard_probe import TipDistance
from recordpublisher.publishers.shards import Shard

from .shard_activity import ShardActivity


@dataclass(frozen=True, slots=True)
class ShardLag:
    """The lag of one shard; times in ms, None where unknown.

    `lag_ms`: the age of its oldest record that no checkpoint covers, 0 when there is none. `unread`: whether there is one.
    `is_idle`: no record arrived within the alarm interval; `idle_ms`: since the last one, where that is known. `loss_ms`: until that
    oldest record is past retention. `subtask`: whose checkpoint the position is from; with ELASTIC assignment `worker`, which has the
    shard's lease. `checkpoint_age_ms`: since that checkpoint was taken. `alarm`: why the shard needs attention. `parents`: the shards that
    were split or merged into it.

    `tip` and the three after it are known only where no positions are stored, see ShardActivity.
    """

    shard: str
    subtask: int | None
    position: str | None
    watermark: int | None
    unread: bool | None
    lag_ms: int | None
    is_idle: bool | None
    idle_ms: int | None
    loss_ms: int | None
    alarm: str | None = None
    tip: str | None = None
    tip_age_ms: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    worker: str | None = None
    parents: tuple[str, ...] = ()
    checkpoint_age_ms: int | None = None


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


def lag_of(probe: ShardProbe, now_ms: int, interval_ms: int, retention_ms: int | None) -> ShardLag:
    """The lag of a probed shard; `now_ms` by the service's clock."""
    if probe.activity is not None:
        return _lag_without_positions(probe.shard, probe.activity)
    state, tip = probe.state, probe.tip
    oldest_ms = None if tip is None else tip.oldest_ms
    is_known = state is not None and tip is not None
    lag_ms = max(0, now_ms - oldest_ms) if oldest_ms is not None else 0
    idle_ms = None if state is None or tip is None or tip.has_unread else _since(state.arrival_ms, now_ms)
    return ShardLag(
        shard=probe.shard.shard_id,
        subtask=probe.subtask,
        position=None if state is None or state.position is None else str(state.position),
        watermark=None if state is None else state.watermark,
        unread=tip.has_unread if tip is not None and is_known else None,
        lag_ms=lag_ms if is_known else None,
        is_idle=idle_ms >= interval_ms if idle_ms is not None else _is_idle(probe.recent),
        idle_ms=idle_ms,
        loss_ms=None if oldest_ms is None or retention_ms is None else oldest_ms + retention_ms - now_ms,
        worker=probe.worker,
        parents=probe.shard.parents,
        checkpoint_age_ms=_since(probe.taken_ms, now_ms),
    )


def _lag_without_positions(shard: Shard, activity: ShardActivity) -> ShardLag:
    rate = activity.records_per_second
    is_idle = None if rate is None else rate == 0
    idle_ms = activity.tip_age_ms
    return ShardLag(
        shard.shard_id, None, None, None, None, None, is_idle, idle_ms, None, **asdict(activity), parents=shard.parents
    )


def lost_shard_lag(key: str, state: ShardState, subtask: int | None) -> ShardLag:
    """A shard that was not read to its end and is no longer listed: an alarm at once (S5)."""
    position = None if state.position is None else str(state.position)
    alarm = "the stream no longer lists it: what was not read is past retention and lost"
    shard_id = key.rsplit("/", 1)[1]
    return ShardLag(
        shard_id, subtask, position, state.watermark, None, None, None, None, None, alarm, parents=state.parents
    )


def is_overdue(lag: ShardLag, interval_ms: int) -> bool:
    """Whether the oldest unread record is older than the alarm interval. It is an alarm when the position does not move either."""
    return bool(lag.unread) and lag.lag_ms is not None and lag.lag_ms >= interval_ms


def _since(moment_ms: int | None, now_ms: int) -> int | None:
    return None if moment_ms is None else max(0, now_ms - moment_ms)


def _is_idle(recent: TipDistance | None) -> bool | None:
    return None if recent is None else not recent.has_unread
