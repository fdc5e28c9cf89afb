"""A receive from a queue waits until a record is visible, on the endpoint's clock."""

import asyncio

import msgspec
import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.dispatcher import RequestDispatcher
from recordpublisher.local.streams.account import Account
from recordpublisher.local.streams.resharding import update_shard_count
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


class Queue:
    """A queue of a stream with two shards, called by the API."""

    def __init__(self, clock=None, **attributes):
        self.account = Account(clock or VirtualClock(), "us-east-1", Delays(consumer=0), None)
        self.stream = self.account.create_stream("orders", 2)
        self.stream.mode = "ON_DEMAND"
        self.dispatcher = RequestDispatcher(self.account)
        self.attributes = attributes
        self.arn = ""

    async def create(self):
        streams = [{"StreamARN": self.stream.arn}]
        created = await self.call(
            "CreateQueue", QueueName="q", StreamConfigurationList=streams, QueueAttributes=self.attributes
        )
        self.arn = created["QueueDescription"]["QueueARN"]
        return self

    async def call(self, operation, **fields):
        return msgspec.json.decode(await self.dispatcher.call(operation, msgspec.json.encode(fields)) or b"{}")

    async def receive(self, operation="ReceiveQueueRecords", **options):
        """Return the records and how long the call took."""
        before = asyncio.get_running_loop().time()
        response = await self.call(operation, QueueARN=self.arn, **options)
        return response["QueueRecords"], asyncio.get_running_loop().time() - before


def on_virtual_time(scenario, **attributes):
    async def main():
        return await scenario(await Queue(**attributes).create())

    return run_virtual(main())


@pytest.mark.parametrize(("options", "seconds"), [({}, 9), ({"WaitTimeSeconds": 20}, 20)])
def test_an_empty_queue_answers_when_the_wait_is_over(options, seconds):
    records, took = on_virtual_time(lambda queue: queue.receive(**options))
    assert records == []
    assert took == pytest.approx(seconds, abs=0.01)


def test_a_new_record_ends_the_wait_of_one_receiver_and_not_of_the_others():
    async def scenario(queue):
        receivers = [asyncio.create_task(queue.receive(WaitTimeSeconds=5)) for _ in range(3)]
        await asyncio.sleep(2)
        queue.stream.put(b"x", "k")
        return await asyncio.gather(*receivers)

    answers = on_virtual_time(scenario)
    assert sorted((len(records), round(took)) for records, took in answers) == [(0, 5), (0, 5), (1, 2)]


def test_a_record_of_a_shard_that_opens_during_the_wait_is_received():
    async def scenario(queue):
        receiver = asyncio.create_task(queue.receive())
        await asyncio.sleep(1)
        update_shard_count(queue.stream, 4)
        await asyncio.sleep(1)
        queue.stream.put(b"x", "k")
        return await receiver

    records, took = on_virtual_time(scenario)
    assert (len(records), round(took)) == (1, 2)


def test_a_timeout_that_ends_during_the_wait_ends_it():
    async def scenario(queue):
        queue.stream.put(b"x", "k")
        await queue.receive()
        return await queue.receive()

    records, took = on_virtual_time(scenario, VisibilityTimeoutSeconds=3)
    assert (records[0]["ReceiveCount"], round(took)) == (2, 3)


def test_a_released_record_is_received_by_one_who_waits():
    async def scenario(queue):
        queue.stream.put(b"x", "k")
        (record,), _ = await queue.receive()
        receiver = asyncio.create_task(queue.receive())
        await asyncio.sleep(1)
        entry = {"ReceiptHandle": record["ReceiptHandle"], "VisibilityTimeoutSeconds": 0}
        await queue.call("UpdateQueueRecordsVisibility", QueueARN=queue.arn, Entries=[entry])
        return await receiver

    records, took = on_virtual_time(scenario)
    assert (len(records), round(took)) == (1, 1)


def test_a_poll_for_dead_letters_waits_as_well():
    async def scenario(queue):
        queue.stream.put(b"x", "k")
        await queue.receive()
        return await queue.receive("ReceiveDeadLetterQueueRecords")

    records, took = on_virtual_time(
        scenario,
        VisibilityTimeoutSeconds=3,
        DeadLetterConfiguration={"TargetType": "BUILT_IN", "MaxReceiveCount": 1},
    )
    assert (len(records), round(took)) == (1, 3)


def test_a_deleted_queue_ends_the_wait_with_an_error():
    async def scenario(queue):
        receiver = asyncio.create_task(queue.receive())
        await asyncio.sleep(1)
        await queue.call("DeleteQueue", QueueARN=queue.arn)
        with pytest.raises(ApiError, match=r"^ResourceNotFoundException"):
            await receiver
        return asyncio.get_running_loop().time()

    assert on_virtual_time(scenario) < 2


def test_a_manual_clock_that_advances_ends_the_wait():
    async def main():
        clock = ManualClock()
        queue = await Queue(clock, VisibilityTimeoutSeconds=3).create()
        clock.on_advance(queue.account.wake_all)
        queue.stream.put(b"x", "k")
        await queue.receive()
        receiver = asyncio.create_task(queue.receive())
        await asyncio.sleep(0)
        clock.advance(3_000)
        return await receiver

    records, _ = asyncio.run(main())
    assert records[0]["ReceiveCount"] == 2


def test_while_a_manual_clock_stands_still_the_wait_goes_by_the_event_loop():
    async def main():
        queue = await Queue(ManualClock()).create()
        async with asyncio.timeout(60):
            return await queue.receive(WaitTimeSeconds=5)

    records, took = run_virtual(main())
    assert records == []
    assert took == pytest.approx(5, abs=0.1)


def test_who_stops_waiting_has_received_nothing():
    async def scenario(queue):
        receiver = asyncio.create_task(queue.receive())
        await asyncio.sleep(1)
        receiver.cancel()
        await asyncio.wait([receiver])
        queue.stream.put(b"x", "k")
        return await queue.receive()

    records, took = on_virtual_time(scenario)
    assert (records[0]["ReceiveCount"], took) == (1, 0)


@pytest.mark.parametrize(("rule", "code"), [("throttle*1", "ThrottlingException"), ("error*1", "InternalFailure")])
def test_calls_of_queues_are_throttled_and_fail_by_rules(rule, code):
    async def scenario(queue):
        queue.account.faults.start_random(rule)
        with pytest.raises(ApiError) as raised:
            await queue.receive()
        return raised.value.code

    assert on_virtual_time(scenario) == code


def test_records_whose_answer_was_lost_come_back_after_their_timeout():
    async def scenario(queue):
        queue.stream.put(b"x", "k")
        queue.account.faults.start_random("lost@ReceiveQueueRecords*1")
        with pytest.raises(ConnectionAbortedError):
            await queue.receive()
        return await queue.receive()

    records, took = on_virtual_time(scenario, VisibilityTimeoutSeconds=3)
    assert (records[0]["ReceiveCount"], round(took)) == (2, 3)
