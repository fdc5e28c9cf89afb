"""Requests are dispatched: the table of operations, faults, and long polls of queues."""

import asyncio

import msgspec
import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.account import Account
from recordpublisher.local.dispatcher import OPERATIONS, HtmlPageError, RequestDispatcher
from recordpublisher.local.errors import ApiError
from recordpublisher.local.stream import split, update_shard_count
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

FIRST = "shardId-000000000000"


class Service:
    """An account with one stream, called by the API."""

    def __init__(self, rules: str = "") -> None:
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=0), None)
        self.stream = self.account.create_stream("orders", 1)
        self.account.faults.start_random(rules)
        self.dispatcher = RequestDispatcher(self.account)

    async def call(self, operation, **fields):
        response = await self.dispatcher.call(operation, msgspec.json.encode(fields))
        return msgspec.json.decode(response or b"{}")

    async def iterator(self):
        fields = {"StreamName": "orders", "ShardId": FIRST, "ShardIteratorType": "TRIM_HORIZON"}
        return (await self.call("GetShardIterator", **fields))["ShardIterator"]

    async def read(self):
        return await self.call("GetRecords", ShardIterator=await self.iterator())


def with_faults(rules, scenario):
    """Run a scenario on a service with these rules, on virtual time."""

    async def main():
        return await scenario(Service(rules))

    return run_virtual(main())


@pytest.mark.parametrize("rule", ["empty", "stale", "incomplete"])
def test_the_fault_of_a_call_that_fails_does_not_hit_another_shard(rule):
    async def scenario(service):
        service.stream.put(b"1", "k")
        iterator = await service.iterator()
        service.account.faults.start_random(f"{rule}@GetRecords*1" if rule == "empty" else f"{rule}@ListShards*1")
        if rule == "empty":
            with pytest.raises(ApiError):
                await service.call("GetRecords", ShardIterator=iterator, DryRun=True)
            assert len((await service.call("GetRecords", ShardIterator=iterator))["Records"]) == 1
        else:
            with pytest.raises(ApiError):
                await service.call("ListShards", StreamName="unknown")
            split(service.stream, service.stream.shard(FIRST), 2**127)
            assert len((await service.call("ListShards", StreamName="orders"))["Shards"]) == 3

    with_faults("", scenario)


@pytest.mark.parametrize(
    ("rule", "code", "status"),
    [
        ("throttle@GetRecords*1", "ProvisionedThroughputExceededException", 400),
        ("throttle@GetShardIterator*1", "LimitExceededException", 400),
        ("error*1", "InternalFailure", 500),
        ("missing*1", "ResourceNotFoundException", 400),
        ("expire*1", "ExpiredIteratorException", 400),
    ],
)
def test_a_call_is_refused_and_the_next_one_is_not(rule, code, status):
    async def scenario(service):
        with pytest.raises(ApiError) as raised:
            await service.read()
        await asyncio.sleep(1)
        await service.read()
        return raised.value.code, raised.value.status

    assert with_faults(rule, scenario) == (code, status)


def test_a_throttled_shard_refuses_reads_for_a_second():
    async def scenario(service):
        refused = []
        for _ in range(4):
            try:
                await service.read()
            except ApiError:
                refused.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.4)
        return refused

    assert with_faults("throttle@GetRecords*1", scenario) == [0, 0.4, 0.8]


@pytest.mark.parametrize(("rule", "is_done"), [("reset@CreateStream", None), ("reset", False), ("lost", True)])
def test_a_connection_breaks_before_or_after_a_call_is_carried_out(rule, is_done):
    async def scenario(service):
        arn = service.stream.arn
        try:
            await service.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="app")
        except ConnectionAbortedError:
            return bool(service.stream.consumers.all())
        return None

    assert with_faults(rule, scenario) is is_done


@pytest.mark.parametrize(("rule", "number"), [("slow*1~10", 1), ("late*1~10", 0)])
def test_a_slow_call_is_carried_out_late_and_a_late_one_at_once(rule, number):
    async def scenario(service):
        iterator = await service.iterator()
        service.account.faults.start_random(rule, 5)
        reading = asyncio.create_task(service.call("GetRecords", ShardIterator=iterator))
        await asyncio.sleep(0.01)
        service.stream.put(b"data", "key")
        response = await reading
        return len(response["Records"]), asyncio.get_running_loop().time()

    found, seconds = with_faults("", scenario)
    assert found == number
    assert 1 < seconds < 10


def test_half_a_response_ends_cleanly():
    async def scenario(service):
        body = msgspec.json.encode({"StreamName": "orders"})
        whole = await Service().dispatcher.call("ListShards", body)
        assert await service.dispatcher.call("ListShards", body) == whole[: len(whole) // 2]

    with_faults("half", scenario)


def test_a_proxy_returns_an_html_page():
    async def scenario(service):
        with pytest.raises(HtmlPageError):
            await service.iterator()

    with_faults("page", scenario)


def test_incomplete_listings_lack_other_shards_in_turn():
    async def scenario(service):
        split(service.stream, service.stream.shard(FIRST), 2**127)
        listings = [(await service.call("ListShards", StreamName="orders"))["Shards"] for _ in range(5)]
        return ["".join(shard["ShardId"][-1] for shard in listing) for listing in listings]

    assert with_faults("incomplete*4", scenario) == ["0", "12", "12", "0", "012"]


def test_a_stale_listing_shows_the_stream_as_it_was():
    async def scenario(service):
        await asyncio.sleep(100)
        split(service.stream, service.stream.shard(FIRST), 2**127)
        stale, now = [(await service.call("ListShards", StreamName="orders"))["Shards"] for _ in range(2)]
        return [each["ShardId"][-1] for each in stale], [
            "EndingSequenceNumber" in s["SequenceNumberRange"] for s in stale + now
        ]

    assert with_faults("stale*1", scenario) == (["0"], [False, True, False, False])


def test_the_clock_jumps_ahead():
    async def scenario(service):
        before = service.account.clock.now_ms()
        await service.call("ListShards", StreamName="orders")
        return service.account.clock.now_ms() - before

    assert 0 < with_faults("skew*1", scenario) <= 200_000


def test_a_consumer_that_does_not_exist_is_described_as_deleting():
    async def scenario(service):
        async def status():
            fields = {"StreamARN": service.stream.arn, "ConsumerName": "app"}
            try:
                return (await service.call("DescribeStreamConsumer", **fields))["ConsumerDescription"]["ConsumerStatus"]
            except ApiError as error:
                return error.code

        first = await status()
        await asyncio.sleep(4)
        return first, await status()

    assert with_faults("deleting*1", scenario) == ("DELETING", "ResourceNotFoundException")


def test_a_record_of_put_records_is_refused():
    async def scenario(service):
        records = [{"Data": "AA==", "PartitionKey": "k"}] * 3
        return (await service.call("PutRecords", StreamName="orders", Records=records))["FailedRecordCount"]

    assert with_faults("partial*2", scenario) == 2


def test_a_body_that_is_not_json_is_refused_in_the_same_way_with_faults():
    async def scenario(service):
        with pytest.raises(ApiError, match="SerializationException"):
            await service.dispatcher.call("ListShards", b"\xff{")

    with_faults("error=0.5", scenario)


def test_an_empty_read_is_behind_the_tip_and_goes_on_where_it_was():
    async def scenario(service):
        service.stream.put(b"1", "k")
        first = await service.read()
        second = await service.call("GetRecords", ShardIterator=first["NextShardIterator"])
        third = await service.call("GetRecords", ShardIterator=second["NextShardIterator"])
        return first, second, third

    first, second, third = with_faults("empty@GetRecords*1", scenario)

    assert (first["Records"], first["MillisBehindLatest"] > 0) == ([], True)
    assert len(second["Records"]) == 1
    assert (third["Records"], third["MillisBehindLatest"]) == ([], 0)


def test_an_empty_read_at_the_tip_is_at_the_tip():
    async def scenario(service):
        return await service.read()

    assert with_faults("empty", scenario)["MillisBehindLatest"] == 0


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


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("CreateStream", {"StreamName": 23}),
        ("CreateStream", {"ShardCount": "23"}),
        ("PutRecord", {"Data": True}),
        ("PutRecord", {"Data": "23456"}),
        ("PutRecord", {"SequenceNumberForOrdering": {}}),
        ("PutRecords", {"Records": {}}),
        ("PutRecords", {"Records": ["a"]}),
        ("GetShardIterator", {"ShardIteratorType": []}),
        ("ListShards", {"StreamCreationTimestamp": "23"}),
    ],
)
def test_a_field_of_the_wrong_type_is_a_serialization_exception(account, operation, fields):
    with pytest.raises(ApiError, match=r"^SerializationException"):
        OPERATIONS[operation](account, msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("CreateStream", {"StreamName": None}),
        ("CreateStream", {"StreamName": "a", "ShardCount": 0}),
        ("GetShardIterator", {"StreamName": "a", "ShardId": "b", "ShardIteratorType": "SOON"}),
    ],
)
def test_a_missing_or_invalid_field_is_a_validation_exception(account, operation, fields):
    with pytest.raises(ApiError, match=r"^ValidationException"):
        OPERATIONS[operation](account, msgspec.json.encode(fields))


def test_an_operation_without_output_answers_with_an_empty_body(account):
    assert OPERATIONS["CreateStream"](account, b'{"StreamName":"orders"}') == b""


def test_json_that_is_nested_too_deeply_is_a_serialization_exception(account):
    with pytest.raises(ApiError, match=r"^SerializationException"):
        OPERATIONS["CreateStream"](account, b'{"Tags":' + b'{"a":' * 200_000)
