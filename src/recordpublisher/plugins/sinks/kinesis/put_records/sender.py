"""Makes PutRecords calls when they are due and permitted, a bounded number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from recordpublisher.plugins.sinks.queued_writes import PERMISSION_SECONDS, SourceShard
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FatalKinesisError, ImpossibleStateError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult, WritingPort

from ..failed_records import VALIDATION_EXCEPTION
from ..pending_record import PendingRecord, size_of
from ..settings import KinesisSinkSettings
from ..shard_queues.kpl_aggregator import KplAggregator
from ..shard_queues.shard_queues import ShardQueues
from ..statistics import SinkMetrics
from ..waiters import Notifier
from .request import NEVER, PutRequest, take_next_request
from .retry_or_give_up import results_of_failed_call, results_of_refused_call, with_unsent


class SendPermission:
    """Owns the shards that a job reads now. Records that were queued before their shard was revoked are never sent."""

    def __init__(self, aggregator: KplAggregator | None) -> None:
        self._aggregator = aggregator
        self._sources: dict[str, SourceShard] = {}
        self._has_revoked = False
        self._may_write: Callable[[], bool] | None = None

    def ask(self, may_write: Callable[[], bool] | None) -> None:
        """Set the function that says whether the job may write. With None the job may always write."""
        self._may_write = may_write

    @property
    def is_given(self) -> bool:
        """Whether the job may write now."""
        return self._may_write is None or self._may_write()

    def source(self, key: str) -> SourceShard:
        """Return the source of the records that are read from this shard now."""
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = SourceShard()
        return source

    def revoke(self, keys: Collection[str]) -> None:
        """Mark these shards as no longer read here."""
        for key in self._sources.keys() & keys:
            self._sources.pop(key).is_revoked = self._has_revoked = True

    async def entries(self, records: Sequence[PendingRecord]) -> list[PutEntry | None]:
        """Wait until the records may be sent, and return their entries. The entry is None if the record must no longer be sent."""
        while True:
            kept = map(self._without_revoked, records) if self._has_revoked else records
            entries = [
                None if one is None else PutEntry(one.data, one.partition_key, one.explicit_hash_key) for one in kept
            ]
            if self.is_given or not any(entries):
                return entries
            await asyncio.sleep(PERMISSION_SECONDS)

    def _without_revoked(self, record: PendingRecord) -> PendingRecord | None:
        """Return the record without the parts that must not be sent, or None if no part may be sent."""
        parts = [part for part in record.user_records if part.source is None or not part.source.is_revoked]
        if not parts or len(parts) == len(record.user_records) or self._aggregator is None:
            return record if parts else None
        return self._aggregator.aggregate(parts)


class Sender:
    """Owns the open calls, and the time of the next check for a call that is due. `classify_results` decides what results mean."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        queues: ShardQueues,
        settings: KinesisSinkSettings,
        clock: Clock,
        metrics: SinkMetrics,
        permission: SendPermission,
        largest_record_now: Callable[[], Awaitable[int]],
        on_results: Callable[[PutRequest, list[PutResult]], None],
    ) -> None:
        self._port = port
        self._stream = stream
        self._queues = queues
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._permission = permission
        self._largest_record_now = largest_record_now
        self._on_results = on_results
        self._wakeup = Notifier()
        self._next_check_at = NEVER
        self._calls: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    @property
    def open_requests(self) -> int:
        """Number of calls that have not ended."""
        return len(self._calls)

    def wake(self) -> None:
        """Check at once whether a call is due."""
        self._wakeup.notify_all()

    def wake_by(self, at: float) -> None:
        """Make sure that there is a check at this time (seconds of the clock) or before."""
        if at < self._next_check_at:
            self._wakeup.notify_all()

    async def run(self) -> None:
        """Send until cancelled. Raises: the first error of a call that retries cannot fix."""
        self._failed = asyncio.get_running_loop().create_future()
        try:
            while not self._failed.done():
                await self._step()
            self._failed.result()
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            if not self._failed.cancel():
                self._failed.exception()  # marks it as retrieved, so that asyncio does not warn

    async def _step(self) -> None:
        """Start one call, or wait until the next one may be due."""
        if len(self._calls) >= self._settings.connections:
            await self._wakeup.wait()
            return
        now = self._clock.monotonic()
        found = take_next_request(self._queues, now, self._settings)
        if isinstance(found, list):
            call = asyncio.create_task(self._send(found), name="put-records")
            self._calls.add(call)
            call.add_done_callback(self._on_call_end)
            return
        self._next_check_at = found
        await self._wakeup.wait(None if found == NEVER else max(found - now, 0.0))
        self._next_check_at = 0.0  # The sender is awake and checks next, so `wake_by` need not wake it.

    def _on_call_end(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        self._wakeup.notify_all()

    async def _send(self, request: PutRequest) -> None:
        entries = await self._permission.entries([record for batch in request for record in batch.records])
        sent = [entry for entry in entries if entry is not None]
        results: list[PutResult] = []
        if sent:
            began = self._clock.monotonic()
            results = await self._results_of(sent)
            self._metrics.call_ended(self._clock.monotonic() - began)
        if len(sent) < len(entries):
            results = with_unsent(request, entries, results)
        self._on_results(request, results)

    async def _results_of(self, entries: list[PutEntry]) -> list[PutResult]:
        try:
            response = await self._port.put_records(self._stream, entries)
        except TransientError as error:
            self._metrics.add("failedRequests")
            return results_of_failed_call(error, len(entries))
        except FatalKinesisError as error:
            if error.code != VALIDATION_EXCEPTION:
                raise
            self._metrics.add("failedRequests")
            largest = await self._largest_record_now()
            if not any(size_of(entry.data, entry.partition_key) > largest for entry in entries):
                raise
            return results_of_refused_call(error, entries, largest)
        if len(response.results) != len(entries):
            raise ImpossibleStateError(
                f"PutRecords returned {len(response.results)} results for {len(entries)} records"
            )
        return response.results
