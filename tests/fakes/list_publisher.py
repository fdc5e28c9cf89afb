"""A publisher of a list, whose contract runs on virtual time; subclasses break it."""

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import ClassVar

from recordpublisher import (
    PositionType,
    RecordBatch,
    RecordPublisher,
    RecordPublisherFactory,
    RunResult,
    SequenceNumber,
    Shard,
    UserRecord,
)
from recordpublisher.testing import PublisherCase, PublisherContract, run_virtual

ARRIVAL = 1_790_000_000.0
PAYLOADS = [b"%d" % number for number in range(10)]


class ListPublisher(RecordPublisher):
    """Reads a list, three records at a time."""

    def __init__(self, shard, start, metrics) -> None:
        self.shard, self.metrics = shard, metrics
        self.at = self.place_of(start)

    def place_of(self, start):
        match start.type:
            case PositionType.AFTER_SEQUENCE_NUMBER:
                return int(start.sequence_number)
            case PositionType.AT_SEQUENCE_NUMBER:
                return int(start.sequence_number) - 1
            case PositionType.AT_TIMESTAMP:
                return sum(1000 * (ARRIVAL + number) < start.timestamp_ms for number in range(len(PAYLOADS)))
            case PositionType.LATEST:
                return len(PAYLOADS)
        return 0

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            await asyncio.sleep(0.2)
            batch = self.batch()
            self.metrics.count_read(batch)
            self.advance(await consumer(batch))
        return RunResult.COMPLETE

    def advance(self, taken):
        self.at = self.at if taken is None else int(taken.sequence)

    def batch(self):
        records = [UserRecord(data, str(number), ARRIVAL + number - 1, "k") for number, data in enumerate(PAYLOADS, 1)][
            self.at : self.at + 3
        ]
        last, size = SequenceNumber(records[-1].sequence_number), sum(len(record.data) for record in records)
        return RecordBatch(self.shard, records, None, last, raw_count=len(records), raw_bytes=size)


class SwallowsErrors(ListPublisher):
    """Swallows errors of the consumer."""

    async def run(self, consumer):
        with suppress(Exception):
            return await super().run(consumer)
        return RunResult.COMPLETE


class ListContract(PublisherContract):
    publisher = ListPublisher
    ports: ClassVar = {}

    @asynccontextmanager
    async def open_case(self):
        publisher = self.publisher

        class Factory(RecordPublisherFactory):
            async def create(self, shard, starting_position, metrics):
                return publisher(shard, starting_position, metrics)

        yield PublisherCase(type("Ported", (Factory,), dict(self.ports))(), Shard("s", "0"), PAYLOADS)

    def execute(self, work):
        run_virtual(work)
