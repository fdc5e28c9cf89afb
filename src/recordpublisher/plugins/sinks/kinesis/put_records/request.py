"""The next PutRecords call: what goes, of which lanes, or when to look again. Plain functions of the lanes and the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..pending_record import PendingRecord
from ..shard_queues.shard_queue import ShardQueue

NEVER = float("inf")
SOON_SECONDS = 0.001
"""Rounding of timers: what is due so soon is due."""
TOGETHER_SECONDS = 0.01
"""ShardQueues whose turn comes so soon after another's go with it: one call instead of many small ones."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Of one call: records, bytes of data and keys, and how long what does not fill one waits."""

    records: int
    bytes: int
    linger_seconds: float


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """What of one lane goes in a call, and the seconds that its shard rests for it."""

    lane: ShardQueue
    records: list[PendingRecord]
    rest: float


@dataclass(frozen=True, slots=True)
class Request:
    """One call: the batches of its lanes, whose records stand in this order."""

    batches: list[ShardBatch]


def take_next_request(lanes: Iterable[ShardQueue], now: float, limits: RequestLimits) -> Request | float:
    """The call that should go now, its records taken off the lanes; or the time at which to look again.

    A call goes when it can be filled, or when something has waited for the linger.
    """
    ready, look_at = _ready(lanes, now)
    if not ready:
        return look_at
    due = [lane for lane in ready if lane.since + limits.linger_seconds <= now + SOON_SECONDS]
    if not due and not _fill(ready, limits):
        return min(look_at, *(lane.since + limits.linger_seconds for lane in ready))
    batches = _taken(sorted(ready, key=_urgency), set(due), now, limits)
    return Request(batches) if batches else look_at


def _ready(lanes: Iterable[ShardQueue], now: float) -> tuple[list[ShardQueue], float]:
    """The lanes that may be written to now, and when the next of the others may."""
    waiting = [lane for lane in lanes if lane.queue and lane.room > 0]
    ready = [lane for lane in waiting if lane.turn <= now + TOGETHER_SECONDS]
    return ready, min([lane.turn for lane in waiting if lane.turn > now + TOGETHER_SECONDS], default=NEVER)


def _fill(ready: list[ShardQueue], limits: RequestLimits) -> bool:
    return (
        sum([lane.estimate for lane in ready]) >= limits.records
        or sum([min(lane.queued_bytes, lane.pace.grain_bytes) for lane in ready]) >= limits.bytes
    )


def _urgency(lane: ShardQueue) -> float:
    """ShardQueues that were not written to for the longest time go first: none starves where one call cannot take all."""
    return lane.turn


def _taken(ready: list[ShardQueue], due: set[ShardQueue], now: float, limits: RequestLimits) -> list[ShardBatch]:
    batches: list[ShardBatch] = []
    records, size = limits.records, limits.bytes
    for lane in ready:
        cut = lane.take(records, size, is_due=lane in due)
        if not cut[0]:
            continue
        if batches and cut[1] > size:  # a record larger than what is left of the call waits for one of its own
            lane.put_back(cut[0])
            continue
        batches.append(ShardBatch(lane, cut[0], lane.sent(cut, now)))
        records, size = records - len(cut[0]), size - cut[1]
        if records <= 0 or size <= 0:
            break
    return batches
