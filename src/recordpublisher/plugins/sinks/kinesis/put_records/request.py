"""Decides when the next PutRecords call is due, and which records of which shards it carries. Plain functions of queues and time."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..pending_record import PendingRecord
from ..settings import KinesisSinkSettings
from ..shard_queues.shard_queue import ShardQueue

NEVER = float("inf")
TIMER_TOLERANCE_SECONDS = 0.001
"""Timers are rounded, so a call that is due this soon counts as due."""
COALESCE_SECONDS = 0.01
"""Shards whose next send is this close go into the same call: one call instead of many small ones."""


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """The records of one shard in a call, and the seconds that the shard needs for them at its rate limit."""

    queue: ShardQueue
    records: list[PendingRecord]
    limit_seconds: float


PutRequest = list[ShardBatch]
"""The records of one call, shard by shard, in the order in which they are sent."""


def take_next_request(queues: Iterable[ShardQueue], now: float, limits: KinesisSinkSettings) -> PutRequest | float:
    """Take the records of the call that is due now off the queues. If no call is due, return the time of the next check.

    A call is due when it can be filled, or when a record has waited for the linger.
    """
    ready, check_at = _ready(queues, now)
    if not ready:
        return check_at
    due = [queue for queue in ready if queue.waiting_since + limits.linger_seconds <= now + TIMER_TOLERANCE_SECONDS]
    if due or _fills_a_call(ready, limits):
        # The shard that has waited longest comes first, so that no shard starves if one call cannot take all records.
        request = _take_batches(sorted(ready, key=lambda queue: queue.next_send_at), set(due), now, limits)
        if request:
            return request
    return min(check_at, *(queue.waiting_since + limits.linger_seconds for queue in ready))


def _ready(queues: Iterable[ShardQueue], now: float) -> tuple[list[ShardQueue], float]:
    """Return the queues that may send now, and the time when the next of the other queues may send."""
    waiting = [queue for queue in queues if queue.records and queue.may_send]
    ready = [queue for queue in waiting if queue.next_send_at <= now + COALESCE_SECONDS]
    later = [queue.next_send_at for queue in waiting if queue.next_send_at > now + COALESCE_SECONDS]
    return ready, min(later, default=NEVER)


def _fills_a_call(ready: list[ShardQueue], limits: KinesisSinkSettings) -> bool:
    return (
        sum([queue.sendable_estimate for queue in ready]) >= limits.request_count
        or sum([queue.sendable_bytes for queue in ready]) >= limits.request_bytes
    )


def _take_batches(ready: list[ShardQueue], due: set[ShardQueue], now: float, limits: KinesisSinkSettings) -> PutRequest:
    batches: PutRequest = []
    records, size = limits.request_count, limits.request_bytes
    for queue in ready:
        taken = queue.take(records, size, is_due=queue in due)
        if not taken[0]:
            continue
        if batches and taken[1] > size:  # A record larger than the room left in this call waits for a call of its own.
            queue.put_back(taken[0])
            continue
        batches.append(ShardBatch(queue, taken[0], queue.mark_sent(taken, now)))
        records, size = records - len(taken[0]), size - taken[1]
        if records <= 0 or size <= 0:
            break
    return batches
