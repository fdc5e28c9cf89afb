"""Lists the shards again after a reshard or a switch to AUTO and back, and sends misrouted parts of aggregates again (K4)."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FatalKinesisError, RetriesExhaustedError, TransientError
from recordpublisher.publishers.kinesis.ports import WritingPort
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.shards import Shard, first_unlisted_range

from ..pending_record import PendingRecord
from ..statistics import SinkMetrics
from ..waiters import Notifier
from .kpl_aggregator import split_aggregate
from .shard_queues import ShardMap

log = logging.getLogger(__name__)

MIN_REFRESH_INTERVAL_SECONDS = 0.5
"""A reshard closes shards one by one, and the shards are not listed again for each of them."""
PERIODIC_REFRESH_SECONDS = 60.0
"""Time between two listings of a stream with AUTO record distribution.

Every shard is expected to take records there, so no record would show a switch back.
"""
MIN_DESCRIBE_INTERVAL_SECONDS = 10.0
"""Pause between two requests for the record distribution, because an account has 20 DescribeStreamSummary calls a second."""
MisroutedRecord = tuple[PendingRecord, str]
"""An acknowledged record and the shard that took it, which is not the expected one."""


class ShardMapRefresher:
    """Owns misrouted aggregates from their acknowledgement until a listing shows which of their parts readers will accept."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        aggregates: bool,
        retries: RetryPolicy,
        clock: Clock,
        metrics: SinkMetrics,
        apply: Callable[[ShardMap], None],
        acknowledge: Callable[[Sequence[PendingRecord]], None],
        send_again: Callable[[Sequence[PendingRecord]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._port = port
        self._stream = stream
        self._keys_decide = True
        self._aggregates = aggregates
        self._retries = retries
        self._clock = clock
        self._metrics = metrics
        self._apply = apply
        self._acknowledge = acknowledge
        self._send_again = send_again
        self._on_change = on_change
        self._misrouted: list[MisroutedRecord] = []
        self._last_misrouted: dict[str, int] = {}
        self._described_at = -math.inf
        self._is_requested = False
        self._wakeup = Notifier()

    def request_refresh(self, misrouted: list[MisroutedRecord]) -> None:
        """List the shards soon, because these records reached other shards than expected. Keep the aggregates among them until then."""
        self._misrouted += [each for each in misrouted if each[0].parts]
        record, shard_id = misrouted[-1]
        self._last_misrouted[shard_id] = record.hash_key
        self._is_requested = True
        self._wakeup.notify_all()

    async def list_first(self, keys_decide: bool) -> None:
        """List the shards before the first record.

        - `keys_decide`: whether keys choose the shards now.

        Raises: RetriesExhaustedError if the shards cannot be listed, and errors that retries cannot fix.
        """
        self._keys_decide = keys_decide
        self._apply_listed(await self._list())

    async def run(self) -> None:
        """List on request until cancelled.

        Raises: RetriesExhaustedError if the listing fails while aggregates wait for it, and errors that retries cannot fix.
        """
        while True:
            if not self._is_requested:
                await self._wakeup.wait(None if self._keys_decide else PERIODIC_REFRESH_SECONDS)
                if self._keys_decide and not self._is_requested:
                    continue
            was_requested, self._is_requested = self._is_requested, False
            misrouted, self._misrouted = self._misrouted, []
            try:
                await self._refresh(misrouted)
            except RetriesExhaustedError as error:
                if misrouted:
                    raise
                # Nothing waits for the new map. The next periodic listing, or the next try after a misrouted record, may bring it.
                log.warning("the shards of %s cannot be listed, so records are sent as before: %s", self._stream, error)
                self._is_requested |= was_requested
            await asyncio.sleep(MIN_REFRESH_INTERVAL_SECONDS)

    async def _refresh(self, misrouted: Sequence[MisroutedRecord]) -> None:
        listed = await self._list()
        self._metrics.add("shardMapRefreshes")
        if not self._keys_decide or self._has_foreign_record(listed):
            self._keys_decide = await self._fetch_whether_keys_decide()
        self._last_misrouted.clear()
        shard_map = self._apply_listed(listed)
        for aggregate, shard_id in misrouted:
            self._complete_misrouted(aggregate, shard_id, shard_map)
        self._on_change()

    async def _list(self) -> Sequence[Shard]:
        return await call_with_retries(self._list_once, self._retries)

    async def _list_once(self) -> Sequence[Shard]:
        """List the shards. Raises: TransientError if shards are missing, because ListShards is eventually consistent."""
        listed = await self._port.list_shards(self._stream)
        missing = first_unlisted_range(listed) if self._keys_decide else None
        if missing is not None or all(shard.closed for shard in listed):
            raise TransientError(
                "ListShards", "IncompleteListing", f"no open shard of {self._stream} takes some hash keys"
            )
        return listed

    def _apply_listed(self, listed: Sequence[Shard]) -> ShardMap:
        shard_map = ShardMap.of(listed, self._keys_decide, keeps_ranges=self._aggregates)
        self._apply(shard_map)
        return shard_map

    def _has_foreign_record(self, listed: Sequence[Shard]) -> bool:
        """Return whether a shard took a record whose own hash key lies outside its range.

        A reshard does not cause that, because the range of a shard never changes.
        """
        taken = self._last_misrouted
        ranges = {shard.shard_id: shard.hash_range for shard in listed}
        return any(shard in ranges and key not in ranges[shard] for shard, key in taken.items())

    async def _fetch_whether_keys_decide(self) -> bool:
        """Request the record distribution again, since it can change at any time. Without the permission, assume AUTO."""
        await asyncio.sleep(max(0.0, self._described_at + MIN_DESCRIBE_INTERVAL_SECONDS - self._clock.monotonic()))
        self._described_at = self._clock.monotonic()
        try:
            summary = await call_with_retries(lambda: self._port.stream_summary(self._stream), self._retries)
        except FatalKinesisError as error:
            log.log(
                logging.WARNING if self._keys_decide else logging.DEBUG,
                "records of %s reach shards that their keys do not choose, so keys do not decide: %s",
                self._stream,
                error,
            )
            return False
        return summary.distributes_by_key

    def _complete_misrouted(self, aggregate: PendingRecord, shard_id: str, shard_map: ShardMap) -> None:
        """Acknowledge the parts that belong to the shard, and send the others again.

        Readers drop a part whose hash key lies outside the range of the shard that has the aggregate, unless keys do not decide the shard
        (S4).
        """
        if not self._keys_decide:
            self._acknowledge(aggregate.parts)
            return
        taken_by = shard_map.ranges.get(shard_id)
        # The parts of one key stay one Kinesis record: with PER_KEY they complete together, and no later record may come between them.
        foreign: list[PendingRecord] = []
        accepted: list[PendingRecord] = []
        for record in split_aggregate(aggregate):
            is_accepted = taken_by is not None and record.hash_key in taken_by
            (accepted if is_accepted else foreign).append(record)
        self._metrics.add("misroutedRecords", sum(len(record.user_records) for record in foreign))
        self._send_again(foreign)
        self._acknowledge([part for record in accepted for part in record.user_records])
