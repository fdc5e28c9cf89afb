"""ShardMapRefresher: lists the shards again after a reshard, and sends misrouted parts of aggregates again (K4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from recordpublisher.publishers.kinesis.ports import WritingPort
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries

from ..pending_record import PendingRecord
from ..statistics import SinkMetrics
from ..waiters import Notifier
from .shard_map import ShardMap

MIN_REFRESH_INTERVAL_SECONDS = 0.5
"""A reshard closes shards one by one; they are not listed again for each."""
PERIODIC_REFRESH_SECONDS = 60.0
"""Between two listings of a stream with AUTO record distribution: no shard is expected there, so nothing is ever misrouted."""
MisroutedRecord = tuple[PendingRecord, str]
"""An acknowledged record and the shard that took it, which is not the expected one."""


class ShardMapRefresher:
    """Owns misrouted aggregates from their acknowledgement until a listing shows which of their parts readers will accept."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        distributes_by_key: bool,
        retries: RetryPolicy,
        metrics: SinkMetrics,
        apply: Callable[[ShardMap], None],
        acknowledge: Callable[[Sequence[PendingRecord]], None],
        send_again: Callable[[Sequence[PendingRecord]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._port = port
        self._stream = stream
        self._keys_decide = distributes_by_key
        self._retries = retries
        self._metrics = metrics
        self._apply = apply
        self._acknowledge = acknowledge
        self._send_again = send_again
        self._on_change = on_change
        self._misrouted: list[MisroutedRecord] = []
        self._is_requested = False
        self._wakeup = Notifier()

    def request_refresh(self, misrouted_aggregates: list[MisroutedRecord]) -> None:
        """List the shards soon, since records reached other shards than expected; these are the aggregates among them."""
        self._misrouted += misrouted_aggregates
        self._is_requested = True
        self._wakeup.notify_all()

    async def run(self) -> None:
        """List on request until cancelled. Raises: errors that retries cannot fix."""
        while True:
            if not self._is_requested:
                await self._wakeup.wait(None if self._keys_decide else PERIODIC_REFRESH_SECONDS)
                if self._keys_decide and not self._is_requested:
                    continue
            self._is_requested = False
            misrouted, self._misrouted = self._misrouted, []
            listed = await call_with_retries(lambda: self._port.list_shards(self._stream), self._retries)
            self._metrics.shard_map_refreshes += 1
            shard_map = ShardMap.of(listed, self._keys_decide)
            self._apply(shard_map)
            for aggregate, shard_id in misrouted:
                self._complete_misrouted(aggregate, shard_id, shard_map)
            self._on_change()
            await asyncio.sleep(MIN_REFRESH_INTERVAL_SECONDS)

    def _complete_misrouted(self, aggregate: PendingRecord, shard_id: str, shard_map: ShardMap) -> None:
        """Acknowledge the parts that belong to the shard, and send the others again: readers drop a part whose hash key lies outside
        the range of the shard that has the aggregate (S4)."""
        taken_by = shard_map.ranges.get(shard_id)
        foreign = [part for part in aggregate.parts if taken_by is None or part.hash_key not in taken_by]
        accepted = [part for part in aggregate.parts if taken_by is not None and part.hash_key in taken_by]
        self._metrics.misrouted_records += len(foreign)
        self._send_again(foreign)
        self._acknowledge(accepted)
