"""Publishers of queues pass the contract of sources without positions, and each kind of broken one fails one of its tests."""

from contextlib import asynccontextmanager

import pytest

from recordpublisher import Properties, RecordPublisher, Shard
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.publishers.kinesis.client import TRANSPORTS
from recordpublisher.publishers.queue import QueueFactory
from recordpublisher.testing import (
    AcknowledgingPublisherCase,
    AcknowledgingPublisherContract,
    VirtualClock,
    run_virtual,
)

from fakes.queues.fake_queue import FakeQueue
from fakes.queues.fake_queue import QueueFactory as FakeQueueFactory
from fakes.queues.fake_queue import QueuePublisher as FakeQueuePublisher
from fakes.queues.local_queue import PROPERTIES, LocalQueue

PAYLOADS = [b"%d" % number for number in range(25)]


class TestTheQueueOfKinesis(AcknowledgingPublisherContract):
    """QUEUE, against the embedded endpoint."""

    @asynccontextmanager
    async def open_case(self):
        queue = LocalQueue()
        await queue.open()
        queue.put(*PAYLOADS)
        token = TRANSPORTS.set(lambda: MemoryTransport(queue.account))
        given = Properties({**PROPERTIES, "flink.queue.wait": 1})

        def start():
            factory = QueueFactory(given, clock=VirtualClock())
            factory.prepare(["orders"])
            return factory

        try:
            yield AcknowledgingPublisherCase(start, Shard("orders", "receiver-000"), PAYLOADS)
        finally:
            TRANSPORTS.reset(token)

    def execute(self, work):
        run_virtual(work)


class FakeContract(AcknowledgingPublisherContract):
    publisher = FakeQueuePublisher

    @asynccontextmanager
    async def open_case(self):
        publisher, queue = self.publisher, FakeQueue()
        queue.put(*range(25))

        class Factory(FakeQueueFactory):
            async def create(self, shard, starting_position, metrics):
                return publisher(self.queue, shard, self._wait)

        yield AcknowledgingPublisherCase(lambda: Factory(queue), Shard("orders", "receiver-0"), PAYLOADS)

    def execute(self, work):
        run_virtual(work)


class TestAQueueInMemory(FakeContract):
    """The contract, on virtual time."""


class CutsReceivesOff(FakeQueuePublisher):
    """Takes records that nobody gets when it is cancelled."""

    async def run(self, consumer):
        while True:
            await consumer(await self._receive())


class DoesNotRelease(FakeQueuePublisher):
    release = RecordPublisher.release


class DoesNotProlong(FakeQueuePublisher):
    prolong = RecordPublisher.prolong


class DoesNotAcknowledge(FakeQueuePublisher):
    acknowledge = RecordPublisher.acknowledge


class AcknowledgesWhatItReceives(FakeQueuePublisher):
    """As a queue that deletes on receipt."""

    async def run(self, consumer):
        async def keep(batch):
            await super(AcknowledgesWhatItReceives, self).acknowledge(batch.records)
            await consumer(batch)

        return await super().run(keep)


class KeepsQuietAtTheTip(FakeQueuePublisher):
    """Waits for ever."""

    async def run(self, consumer):
        async def keep(batch):
            if len(batch):
                await consumer(batch)

        return await super().run(keep)


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (CutsReceivesOff, "test_a_cancelled_run_hides_nothing"),
        (DoesNotRelease, "test_what_is_released_comes_again_at_once"),
        (DoesNotProlong, "test_what_is_prolonged_stays_hidden"),
        (DoesNotAcknowledge, "test_what_is_acknowledged_does_not_come_again"),
        (AcknowledgesWhatItReceives, "test_what_is_not_acknowledged_comes_again_after_its_time"),
        (KeepsQuietAtTheTip, "test_every_record_is_delivered"),
    ],
)
def test_a_broken_publisher_is_found(broken, test):
    contract = FakeContract()
    contract.publisher = broken

    with pytest.raises((AssertionError, TimeoutError)):
        getattr(contract, test)()
