"""Acknowledgements: records of a source without positions: each is acknowledged when it is safe, prolonged meanwhile, or released."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from recordpublisher.publishers.base import RecordPublisher
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError, RetriesExhaustedError, TransientError
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.user_code import describe_error

from ..settings import ACKNOWLEDGING_INTERVAL_MS, FetcherSettings
from .deliveries import Delivery, ReceiverDeliveries

log = logging.getLogger("recordpublisher.fetcher")
LINGER_SECONDS = 0.02
"""For how long what is done is collected before it is acknowledged."""
MOST_OPEN, MOST_OPEN_UNTIL_FLUSH, MOST_OPEN_UNTIL_COMMIT = 100, 1_000, 10_000
"""Records of one receiver that are not acknowledged: with a sink that tells when each is done, with one that is flushed each second, and
with one that commits less often. Then the receiver waits, for a checkpoint that is taken at once."""
COUNTED = (TransientError, RetriesExhaustedError)
"""Of our errors those after which the job goes on: what could not be acknowledged comes again."""
StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Acknowledgements:
    """Owns what a subtask has received and not acknowledged, which its receivers (shards to the other layers) hold; and the calls of
    `acknowledge`, `prolong` and `release`. A job whose source has positions has no such object.
    """

    def __init__(
        self,
        visibility_seconds: float,
        clock: Clock,
        tells_done: bool,
        request_checkpoint: Callable[[], None],
        settings: FetcherSettings,
    ) -> None:
        """`tells_done`: the sink calls `done`, and `confirm_written` counts only for what the sink never saw."""
        interval_ms = settings.acknowledging_interval_ms
        often = MOST_OPEN_UNTIL_FLUSH if interval_ms <= ACKNOWLEDGING_INTERVAL_MS else MOST_OPEN_UNTIL_COMMIT
        self._most_open = MOST_OPEN if tells_done else often
        self._visibility = visibility_seconds
        self._clock = clock
        self._tells_done = tells_done
        self._request_checkpoint = request_checkpoint
        self._receivers: dict[str, ReceiverDeliveries] = {}
        self._written: list[tuple[str, Sequence[str]]] = []
        self._done: list[Delivery] = []
        self._given_up: list[Delivery] = []
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    def receiver(self, key: str, publisher: RecordPublisher, metrics: ShardMetrics) -> ReceiverDeliveries:
        """A receiver starts; `key` is its `Shard.key`."""
        receiver = self._receivers[key] = ReceiverDeliveries(
            publisher,
            metrics,
            self._most_open,
            lambda: self._clock.monotonic() + self._visibility,
            self._on_done,
            self._on_full,
        )
        return receiver

    # --- what becomes of a record -----------------------------------------------------------------------------------------------

    def done(self, key: str, sequence_number: str) -> None:
        """A record, or a part of one, is safe or will never be needed."""
        self._receivers[key].done((sequence_number,))

    def written(self, batch: RecordBatch) -> None:
        """The sink took a batch, and the dead-letter sink what could not be deserialised: done with the next checkpoint."""
        numbers = [poisoned.record.sequence_number for poisoned in batch.poisoned]
        if not self._tells_done:
            numbers += batch.sequence_numbers
        if numbers:
            self._written.append((batch.shard.key, numbers))

    def confirm_written(self) -> None:
        """Everything written is durable; no write has begun since."""
        written, self._written = self._written, []
        for key, numbers in written:
            self._receivers[key].done(numbers)

    def still_held(self, batch: RecordBatch) -> RecordBatch:
        """A batch before it is written: without records when others may have received them, after a suspension. They come again."""
        numbers = [*batch.sequence_numbers, *(poisoned.record.sequence_number for poisoned in batch.poisoned)]
        receiver, now = self._receivers[batch.shard.key], self._clock.monotonic()
        if all(receiver.is_held(number, now) for number in numbers):
            return batch
        dropped = receiver.give_up(numbers)
        log.warning(
            "%d records of %s were visible again before they were written: dropped", len(dropped), batch.shard.key
        )
        self._given_up += dropped
        self._wake.set()
        return RecordBatch(batch.shard, ())

    def _on_done(self, delivery: Delivery) -> None:
        self._done.append(delivery)
        self._wake.set()

    def _on_full(self) -> None:
        if not self._tells_done:
            self._request_checkpoint()

    # --- calls ------------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, start_task: StartTask) -> AsyncIterator[None]:
        """Acknowledge and prolong while the block runs, then release the rest. Raises: what ends the job, of `acknowledge` or `prolong`."""
        self._stopping.clear()
        tasks = [start_task(self._settle_done()), start_task(self._prolong_open())]
        try:
            yield
        finally:
            self._stopping.set()
            self._wake.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._written.clear()
            open_ones = [delivery for receiver in self._receivers.values() for delivery in receiver.give_up_all()]
            try:
                await self._call("release", open_ones)
            except RecordPublisherError as error:
                log.warning("%d records are visible again only after their time: %s", len(open_ones), error)
        for task in tasks:
            task.result()

    async def _settle_done(self) -> None:
        """Acknowledge what is done and release what is given up, until stopped and nothing of it is left."""
        while self._done or self._given_up or not self._stopping.is_set():
            await self._wake.wait()
            if not self._stopping.is_set():
                await asyncio.sleep(LINGER_SECONDS)
                self._wake.clear()
            done, self._done = self._done, []
            given_up, self._given_up = self._given_up, []
            await asyncio.gather(self._call("acknowledge", done), self._call("release", given_up))

    async def _prolong_open(self) -> None:
        """Prolong what has less than half of its time left, until stopped."""
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(self._visibility / 8):
                    await self._stopping.wait()
            except TimeoutError:
                now = self._clock.monotonic()
                open_ones = [delivery for receiver in self._receivers.values() for delivery in receiver]
                short = [delivery for delivery in open_ones if delivery.visible_at - now < self._visibility / 2]
                for delivery in await self._call("prolong", short):
                    delivery.prolonged(now + self._visibility)

    async def _call(self, name: str, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """One call for each publisher, at the same time. Returns the deliveries of those that succeeded."""
        by_publisher: dict[RecordPublisher, list[Delivery]] = {}
        for delivery in deliveries:
            by_publisher.setdefault(delivery.publisher, []).append(delivery)
        calls = [self._call_one(name, publisher, theirs) for publisher, theirs in by_publisher.items()]
        return [delivery for succeeded in await asyncio.gather(*calls) for delivery in succeeded]

    async def _call_one(self, name: str, publisher: RecordPublisher, deliveries: list[Delivery]) -> list[Delivery]:
        try:
            async with asyncio.timeout(self._visibility):  # afterwards it is of no use
                await getattr(publisher, name)([delivery.record for delivery in deliveries])
        except Exception as error:
            if isinstance(error, RecordPublisherError) and not isinstance(error, COUNTED):
                raise
            deliveries[0].metrics.add("failed_acknowledgements", len(deliveries))
            reason = describe_error(error)
            log.warning("cannot %s %d records, which come again: %s", name, len(deliveries), reason)
            return []
        return deliveries
