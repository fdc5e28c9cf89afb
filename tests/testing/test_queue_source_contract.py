"""Queues pass the contract of sources that acknowledge, and each kind of broken one fails one of its tests."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from recordpublisher import Properties
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.publishers.kinesis.client import TRANSPORTS
from recordpublisher.publishers.kinesis_queue_source import KinesisQueue
from recordpublisher.testing import (
    QueueSourceCase,
    QueueSourceContract,
    VirtualClock,
    run_virtual,
)

from fakes.queues.fake_queue import FakeQueue, FakeSource
from fakes.queues.local_queue import PROPERTIES, LocalQueue

PAYLOADS = [b"%d" % number for number in range(25)]


class TestTheQueueOfKinesis(QueueSourceContract):
    """QUEUE, against the embedded endpoint."""

    @asynccontextmanager
    async def open_case(self):
        queue = LocalQueue()
        await queue.open()
        queue.put(*PAYLOADS)
        token = TRANSPORTS.set(lambda: MemoryTransport(queue.account))
        given = Properties({**PROPERTIES, "flink.queue.wait": 1})

        def start():
            source = KinesisQueue(given, clock=VirtualClock())
            source.prepare(["orders"])
            return source

        try:
            yield QueueSourceCase(start, PAYLOADS, queue.put)
        finally:
            TRANSPORTS.reset(token)

    def execute(self, work):
        run_virtual(work)


class FakeContract(QueueSourceContract):
    source = FakeSource
    later = 25
    """The number of a message that is added later."""

    @asynccontextmanager
    async def open_case(self):
        queue = FakeQueue()
        queue.put(*range(25))
        yield QueueSourceCase(lambda: self.source(queue), PAYLOADS, lambda data: queue.put(self.later, data=data))

    def execute(self, work):
        run_virtual(work)


class TestAQueueInMemory(FakeContract):
    """The contract, on virtual time."""


class CutsReceivesOff(FakeSource):
    """Takes records that nobody gets when it is cancelled."""

    async def receive(self, metrics):
        return await self._take()


class CutsSlowReceivesOff(FakeSource):
    """Does the same while its service answers, which takes long after a connection that takes some steps."""

    async def receive(self, metrics):
        await asyncio.sleep(0.02)
        taken = await self._take()
        await asyncio.sleep(0.2)
        return taken


class DoesNotRelease(FakeSource):
    async def release(self, records):
        pass


class DoesNotProlong(FakeSource):
    async def prolong(self, records):
        pass


class DoesNotAcknowledge(FakeSource):
    async def acknowledge(self, records):
        pass


class AcknowledgesWhatItReceives(FakeSource):
    """As a queue that deletes on receipt."""

    async def receive(self, metrics):
        records = await super().receive(metrics)
        await super().acknowledge(records)
        return records


class KeepsQuietAtTheTip(FakeSource):
    """Waits for ever."""

    async def receive(self, metrics):
        while not (records := await super().receive(metrics)):
            pass
        return records


class IgnoresReceipts(FakeSource):
    """Finds records by their numbers."""

    def newest(self, records):
        numbers = {record.sequence_number: self.queue.messages.get(record.sequence_number) for record in records}
        handles = {number: f"{number}/{found.receives}" for number, found in numbers.items() if found is not None}
        return [replace(each, handle=handles.get(each.sequence_number, each.handle)) for each in records]


class ReleasesByNumber(IgnoresReceipts):
    async def release(self, records):
        await super().release(self.newest(records))


class ProlongsByNumber(IgnoresReceipts):
    async def prolong(self, records):
        await super().prolong(self.newest(records))


class AcknowledgesByNumber(IgnoresReceipts):
    async def acknowledge(self, records):
        await super().acknowledge(self.newest(records))


@pytest.mark.parametrize(
    ("broken", "method"),
    [(ReleasesByNumber, "release"), (ProlongsByNumber, "prolong"), (AcknowledgesByNumber, "acknowledge")],
)
def test_a_queue_that_ignores_receipts_is_found(broken, method):
    contract = FakeContract()
    contract.source = broken

    with pytest.raises(
        AssertionError, match=rf"^`{method}` with an old receipt has .*: compare the receipt, and not only the number"
    ):
        contract.test_an_old_receipt_changes_nothing()


def test_a_queue_that_uses_a_number_again_is_found():
    """As a table whose next row gets the number of a deleted one."""
    contract = FakeContract()
    contract.later = 24

    with pytest.raises(AssertionError, match="a new record has the sequence number of an acknowledged one"):
        contract.test_a_number_is_never_used_again()


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (CutsReceivesOff, "test_a_cancelled_receive_hides_nothing"),
        (CutsSlowReceivesOff, "test_a_cancelled_receive_hides_nothing"),
        (DoesNotRelease, "test_what_is_released_comes_again_at_once"),
        (DoesNotProlong, "test_what_is_prolonged_stays_hidden"),
        (DoesNotAcknowledge, "test_what_is_acknowledged_does_not_come_again"),
        (AcknowledgesWhatItReceives, "test_what_is_not_acknowledged_comes_again_after_its_time"),
        (KeepsQuietAtTheTip, "test_every_record_is_delivered"),
    ],
)
def test_a_broken_source_is_found(broken, test):
    contract = FakeContract()
    contract.source = broken

    with pytest.raises((AssertionError, TimeoutError)):
        getattr(contract, test)()
