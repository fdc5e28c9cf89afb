"""What each kind of fault does to a call."""

import asyncio

import msgspec
import pytest

from recordpublisher.local import Delays
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.dispatcher import Exchange, PageError
from recordpublisher.local.streams.account import Account
from recordpublisher.local.streams.resharding import split
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

FIRST = "shardId-000000000000"


class Service:
    """An account with one stream, asked in words of the API."""

    def __init__(self, rules: str = "") -> None:
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=0), None)
        self.stream = self.account.create_stream("orders", 1)
        self.account.faults.at_random(rules)
        self.exchange = Exchange(self.account)

    async def ask(self, operation, **fields):
        answer = await self.exchange.answer(operation, msgspec.json.encode(fields))
        return msgspec.json.decode(answer)

    async def iterator(self):
        fields = {"StreamName": "orders", "ShardId": FIRST, "ShardIteratorType": "TRIM_HORIZON"}
        return (await self.ask("GetShardIterator", **fields))["ShardIterator"]

    async def read(self):
        return await self.ask("GetRecords", ShardIterator=await self.iterator())


def meeting(rules, then):
    """Let a coroutine function meet a service with these rules, on virtual time."""

    async def main():
        return await then(Service(rules))

    return run_virtual(main())


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
    async def then(service):
        with pytest.raises(ApiError) as raised:
            await service.read()
        await asyncio.sleep(1)
        await service.read()
        return raised.value.code, raised.value.status

    assert meeting(rule, then) == (code, status)


def test_a_throttled_shard_refuses_reads_for_a_second():
    async def then(service):
        refused = []
        for _ in range(4):
            try:
                await service.read()
            except ApiError:
                refused.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.4)
        return refused

    assert meeting("throttle@GetRecords*1", then) == [0, 0.4, 0.8]


@pytest.mark.parametrize(("rule", "is_done"), [("reset@CreateStream", None), ("reset", False), ("lost", True)])
def test_a_connection_breaks_before_or_after_a_call_is_carried_out(rule, is_done):
    async def then(service):
        arn = service.stream.arn
        try:
            await service.ask("RegisterStreamConsumer", StreamARN=arn, ConsumerName="app")
        except ConnectionAbortedError:
            return bool(service.stream.consumers.all())
        return None

    assert meeting(rule, then) is is_done


@pytest.mark.parametrize(("rule", "number"), [("slow*1~10", 1), ("late*1~10", 0)])
def test_a_slow_call_is_carried_out_late_and_a_late_one_at_once(rule, number):
    async def then(service):
        iterator = await service.iterator()
        service.account.faults.at_random(rule, 5)
        reading = asyncio.create_task(service.ask("GetRecords", ShardIterator=iterator))
        await asyncio.sleep(0.01)
        service.stream.put(b"data", "key")
        answer = await reading
        return len(answer["Records"]), asyncio.get_running_loop().time()

    found, seconds = meeting("", then)
    assert found == number
    assert 1 < seconds < 10


def test_half_an_answer_ends_well():
    async def then(service):
        body = msgspec.json.encode({"StreamName": "orders"})
        whole = await Service().exchange.answer("ListShards", body)
        assert await service.exchange.answer("ListShards", body) == whole[: len(whole) // 2]

    meeting("half", then)


def test_a_proxy_answers_with_a_page():
    async def then(service):
        with pytest.raises(PageError):
            await service.iterator()

    meeting("page", then)


def test_a_stale_listing_shows_the_stream_as_it_was():
    async def then(service):
        await asyncio.sleep(100)
        split(service.stream, service.stream.shard(FIRST), 2**127)
        stale, now = [(await service.ask("ListShards", StreamName="orders"))["Shards"] for _ in range(2)]
        return [each["ShardId"][-1] for each in stale], [
            "EndingSequenceNumber" in s["SequenceNumberRange"] for s in stale + now
        ]

    assert meeting("stale*1", then) == (["0"], [False, True, False, False])


def test_the_clock_steps_forward():
    async def then(service):
        before = service.account.clock.now_ms()
        await service.ask("ListShards", StreamName="orders")
        return service.account.clock.now_ms() - before

    assert 0 < meeting("skew*1", then) <= 200_000


def test_a_consumer_that_is_looked_for_is_just_being_deleted():
    async def then(service):
        async def status():
            fields = {"StreamARN": service.stream.arn, "ConsumerName": "app"}
            try:
                return (await service.ask("DescribeStreamConsumer", **fields))["ConsumerDescription"]["ConsumerStatus"]
            except ApiError as error:
                return error.code

        first = await status()
        await asyncio.sleep(4)
        return first, await status()

    assert meeting("deleting*1", then) == ("DELETING", "ResourceNotFoundException")


def test_a_record_of_put_records_is_refused():
    async def then(service):
        records = [{"Data": "AA==", "PartitionKey": "k"}] * 3
        return (await service.ask("PutRecords", StreamName="orders", Records=records))["FailedRecordCount"]

    assert meeting("partial*2", then) == 2


def test_a_body_that_is_not_json_is_refused_as_ever():
    async def then(service):
        with pytest.raises(ApiError, match="SerializationException"):
            await service.exchange.answer("ListShards", b"\xff{")

    meeting("error=0.5", then)
