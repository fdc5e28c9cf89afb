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

LISTINGS_APART_SECONDS = 0.5
"""A reshard closes shards one by one: it is not listed for each of them."""
LOOK_SECONDS = 60.0
"""Between two listings of a stream where nothing is predicted, and so nothing noticed (AUTO record distribution)."""
Stray = tuple[PendingRecord, str]
"""An aggregate that was acknowledged, and the shard that has it."""


class ShardMapRefresher:
    """Owns the strays between their acknowledgement and the listing that tells which of their parts are where readers look for them."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        distributes_by_key: bool,
        retries: RetryPolicy,
        metrics: SinkMetrics,
        adopt: Callable[[ShardMap], None],
        acknowledged: Callable[[Sequence[PendingRecord]], None],
        send_again: Callable[[Sequence[PendingRecord]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._port = port
        self._stream = stream
        self._distributes_by_key = distributes_by_key
        self._retries = retries
        self._metrics = metrics
        self._adopt = adopt
        self._acknowledged = acknowledged
        self._send_again = send_again
        self._on_change = on_change
        self._strays: list[Stray] = []
        self._is_asked = False
        self._bell = Notifier()

    def noticed(self, strays: list[Stray]) -> None:
        """Records went to other shards than predicted; these are the aggregates among them."""
        self._strays += strays
        self._is_asked = True
        self._bell.ring()

    async def run(self) -> None:
        """List when something was noticed. Raises: what no retry can help."""
        while True:
            if not self._is_asked:
                await self._bell.next(None if self._distributes_by_key else LOOK_SECONDS)
                if self._distributes_by_key and not self._is_asked:
                    continue
            self._is_asked = False
            strays, self._strays = self._strays, []
            listed = await call_with_retries(lambda: self._port.list_shards(self._stream), self._retries)
            self._metrics.shard_map_refreshes += 1
            found = ShardMap.of(listed, self._distributes_by_key)
            self._adopt(found)
            for outgoing, shard_id in strays:
                self._look_into(outgoing, shard_id, found)
            self._on_change()
            await asyncio.sleep(LISTINGS_APART_SECONDS)

    def _look_into(self, outgoing: PendingRecord, shard_id: str, found: ShardMap) -> None:
        """Readers drop parts whose hash key lies outside the shard that has the aggregate (S4): those are sent again."""
        taken_by = found.ranges.get(shard_id)
        foreign = [part for part in outgoing.parts if taken_by is None or part.hash_key not in taken_by]
        at_home = [part for part in outgoing.parts if taken_by is not None and part.hash_key in taken_by]
        self._metrics.wrong_shard_records += len(foreign)
        self._send_again(foreign)
        self._acknowledged(at_home)
