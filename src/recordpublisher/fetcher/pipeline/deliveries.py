"""ReceiverDeliveries: what one receiver of a source without positions has delivered and is neither acknowledged nor given up."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from recordpublisher.publishers.base import RecordPublisher
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics


@dataclass(slots=True, eq=False)
class Delivery:
    """A record of the source, with how many of its parts are not done; others may receive it from `visible_at` on (monotonic seconds)."""

    publisher: RecordPublisher
    metrics: ShardMetrics
    record: UserRecord
    parts: int
    visible_at: float

    def received_again(self, record: UserRecord, parts: int, visible_at: float) -> None:
        """It came again: the newest record acknowledges it."""
        self.record, self.parts, self.visible_at = record, self.parts + parts, visible_at

    def count_part(self) -> bool:
        """One more part is done. Returns whether that was the last one."""
        self.parts -= 1
        return not self.parts

    def prolonged(self, visible_at: float) -> None:
        """Others receive it only from then on."""
        self.visible_at = visible_at


class ReceiverDeliveries:
    """Owns the deliveries of one receiver by their sequence numbers: the `Deliveries` of its consumer.

    A record that comes again while it is open is the same delivery, with the newest record and more parts.
    """

    def __init__(
        self,
        publisher: RecordPublisher,
        metrics: ShardMetrics,
        most_open: int,
        visible_at: Callable[[], float],
        on_done: Callable[[Delivery], None],
        on_full: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._most_open = most_open
        self._visible_at = visible_at
        self._on_done = on_done
        self._on_full = on_full
        self._open: dict[str, Delivery] = {}
        self._numbers: list[str] = []
        self._decoded: list[str] = []
        self._has_room = asyncio.Event()

    def __iter__(self) -> Iterator[Delivery]:
        return iter(list(self._open.values()))

    def register(self, records: Sequence[UserRecord]) -> None:
        """See Deliveries. The data of the records is not kept."""
        visible_at = self._visible_at()
        self._numbers, self._decoded = [record.sequence_number for record in records], []
        parts = Counter(self._numbers)
        for number, record in {record.sequence_number: record for record in records}.items():
            kept = msgspec.structs.replace(record, data=b"")
            delivery = self._open.get(number)
            if delivery is None:
                self._open[number] = Delivery(self._publisher, self._metrics, kept, parts[number], visible_at)
                self._metrics.add("unacknowledged")
            else:
                delivery.received_again(kept, parts[number], visible_at)
                self._metrics.add("duplicates")

    def decoded(self, part: RecordBatch) -> None:
        """See Deliveries."""
        self._decoded += part.sequence_numbers
        self._decoded += [poisoned.record.sequence_number for poisoned in part.poisoned]

    async def wait_for_room(self) -> None:
        """See Deliveries."""
        if len(self._decoded) < len(self._numbers):
            skipped = Counter(self._numbers)
            skipped.subtract(self._decoded)
            self.done(skipped.elements())
        while len(self._open) >= self._most_open:
            self._on_full()
            self._has_room.clear()
            await self._has_room.wait()

    def done(self, sequence_numbers: Iterable[str]) -> None:
        """These records, or parts of them, are safe or will never be needed."""
        for number in sequence_numbers:
            delivery = self._open.get(number)
            if delivery is not None and delivery.count_part():
                self._on_done(self._close(number))

    def give_up(self, sequence_numbers: Iterable[str]) -> list[Delivery]:
        """These will not be done with here. Returns those that were open."""
        return [self._close(number) for number in set(sequence_numbers) if number in self._open]

    def give_up_all(self) -> list[Delivery]:
        """Nothing more will be done with here."""
        return self.give_up(list(self._open))

    def is_held(self, sequence_number: str, now: float) -> bool:
        """Whether no other process can have received this record meanwhile."""
        delivery = self._open.get(sequence_number)
        return delivery is not None and now < delivery.visible_at

    def _close(self, number: str) -> Delivery:
        self._metrics.add("unacknowledged", -1)
        self._has_room.set()
        return self._open.pop(number)
