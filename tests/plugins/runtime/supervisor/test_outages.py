"""For how long a job retries while a service is away: whole jobs in memory, on virtual time."""

import asyncio
import logging
import re

import pytest

import recordpublisher as rp
from recordpublisher.local.account import Account, Delays
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis.client import TRANSPORTS
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

BEGINS = 60
POLLING = {"aws.region": "us-east-1", "flink.stream.initpos": "TRIM_HORIZON"}
EFO = {**POLLING, "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "app"}
READS = ("GetRecords", "GetShardIterator", "SubscribeToShard")
ALL = ("",)
MINUTES = 60


class Collected(rp.Sink):
    def __init__(self):
        self.data = []

    async def write(self, batch):
        self.data += [record.data for record in batch.records]


class AwayTransport(MemoryTransport):
    """Refuses these calls from `BEGINS` on for some seconds."""

    apis, begins, seconds = ALL, BEGINS, 0.0

    def _check(self, api):
        now = asyncio.get_running_loop().time()
        if self.begins <= now < self.begins + self.seconds and api.startswith(self.apis):
            raise TransientError(api, "EndpointConnectionError", "refused")

    async def call_with_body(self, api, body, **parameters):
        self._check(api)
        return await super().call_with_body(api, body, **parameters)

    async def subscribe(self, api, **parameters):
        self._check(api)
        subscription = await super().subscribe(api, **parameters)
        now = asyncio.get_running_loop().time()
        if now < self.begins:
            asyncio.get_running_loop().call_later(self.begins - now, subscription_of(subscription).close)
        return subscription


def subscription_of(answer):
    (response,) = answer.values()
    return response


def in_an_outage(story, seconds, apis=ALL, begins=BEGINS):
    """What `story` returned or raised that ran in an account whose service is away for these seconds, and the seconds until then."""

    async def run():
        account = Account(VirtualClock(), "us-east-1", Delays(), None)
        account.create_stream("orders", 1)
        account.find("orders").put(b"1", "k")
        transport = type("Away", (AwayTransport,), {"apis": apis, "begins": begins, "seconds": seconds})
        token = TRANSPORTS.set(lambda: transport(account))
        try:
            result = await story(account)
        except rp.RecordPublisherError as error:
            result = error
        finally:
            TRANSPORTS.reset(token)
        return result, asyncio.get_running_loop().time()

    return run_virtual(run())


def ran(seconds, properties, apis=ALL, begins=BEGINS):
    """What the job wrote until two minutes after the outage, or the error that ended it; and the seconds until that."""

    async def story(account):
        sink = Collected()
        loop = asyncio.get_running_loop()
        loop.call_later(begins + 1, account.find("orders").put, b"2", "k")
        async with rp.DataFetcher("orders", properties, sink=sink, clock=VirtualClock()) as fetcher:
            loop.call_later(begins + seconds + 120, fetcher.stop)
            await fetcher.run()
        return sink.data

    return in_an_outage(story, seconds, apis, begins)


KINDS = pytest.mark.parametrize(
    ("properties", "apis"),
    [
        pytest.param(POLLING, ALL, id="polling, every call"),
        pytest.param(POLLING, ("GetRecords",), id="GetRecords"),
        pytest.param(EFO, ("SubscribeToShard",), id="SubscribeToShard"),
    ],
)


@KINDS
def test_an_outage_of_ten_minutes_is_outlasted_by_default(properties, apis):
    assert ran(10 * MINUTES, properties, apis)[0] == [b"1", b"2"]


@KINDS
def test_an_outage_of_twenty_minutes_ends_the_job_after_fifteen(properties, apis):
    error, seconds = ran(20 * MINUTES, properties, apis)

    assert isinstance(error, rp.RetriesExhaustedError)
    assert "min (flink.job.max.outage decides)" in str(error)
    assert 15 * MINUTES <= seconds - BEGINS < 16 * MINUTES


@KINDS
def test_with_a_shorter_time_the_job_ends_after_it(properties, apis):
    error, seconds = ran(20 * MINUTES, rp.Properties(properties, max_outage="30s"), apis)

    assert " s (flink.job.max.outage decides)" in str(error)
    assert 30 <= seconds - BEGINS < 70  # a subscription is known to be broken after 20 s


@pytest.mark.parametrize(
    ("properties", "apis", "key", "longest"),
    [
        (POLLING, ("GetRecords",), "flink.shard.getrecords.maxretries", 3),
        (EFO, ("SubscribeToShard",), "flink.shard.subscribetoshard.maxretries", 40),
    ],
)
def test_retries_of_flink_that_are_set_keep_their_meaning(properties, apis, key, longest):
    error, seconds = ran(20 * MINUTES, {**properties, key: 3}, apis)

    assert "failed 4 times in a row" in str(error)
    assert f"({key} decides)" in str(error)
    assert seconds - BEGINS < longest


@pytest.mark.parametrize("properties", [POLLING, EFO], ids=["polling", "EFO"])
def test_a_service_that_is_away_at_the_start_is_waited_for(properties):
    assert ran(10 * MINUTES, properties, begins=0)[0] == [b"1", b"2"]
    assert isinstance(ran(20 * MINUTES, properties, begins=0)[0], rp.RetriesExhaustedError)


@pytest.mark.slow
def test_a_listing_that_is_refused_does_not_end_a_running_job():
    assert ran(20 * MINUTES, POLLING, ("ListShards",))[0] == [b"1", b"2"]


def test_a_read_with_an_end_waits_for_half_a_minute_and_says_so(caplog):
    async def story(account):
        return [batch async for batch in rp.stream("orders", POLLING, stop_at_tip=True)]

    error, seconds = in_an_outage(story, 5 * MINUTES, begins=0)

    assert "for 30 s (flink.job.max.outage decides)" in str(error)
    assert 30 <= seconds < 45
    lines = [record.getMessage() for record in caplog.records if record.name == "recordpublisher.outages"]
    assert 2 <= len(lines) <= 4
    assert len(in_an_outage(story, 20, begins=0)[0]) == 1


def test_a_read_without_an_end_waits_as_a_job_does():
    async def story(account):
        async for batch in rp.stream("orders", POLLING):
            return batch.records[0].data

    assert in_an_outage(story, 10 * MINUTES, begins=0)[0] == b"1"


def test_a_read_with_an_end_waits_for_as_long_as_it_is_told():
    async def story(account):
        return [batch async for batch in rp.stream("orders", POLLING, stop_at_tip=True, max_outage="5m")]

    assert len(in_an_outage(story, 4 * MINUTES, begins=0)[0]) == 1


def test_the_log_has_a_line_when_an_outage_begins_one_a_minute_and_one_at_its_end(caplog):
    caplog.set_level(logging.INFO)
    ran(10 * MINUTES, POLLING)

    lines = [record.getMessage() for record in caplog.records if record.name == "recordpublisher.outages"]
    assert lines[0].startswith("calls to Kinesis have failed for ")
    assert "EndpointConnectionError: refused" in lines[0]
    assert all("have failed for" in line for line in lines[:-1])
    assert lines[-1].startswith("calls to Kinesis succeed again, after ")
    assert 9 <= len(lines) <= 13


def test_a_job_that_waits_for_a_service_at_its_start_is_not_ready_and_says_for_which():
    async def story(account):
        fetcher = rp.DataFetcher("orders", POLLING, sink=Collected(), clock=VirtualClock())

        async def job():
            async with fetcher:
                await fetcher.run()

        running = asyncio.create_task(job())
        await asyncio.sleep(40)
        during = fetcher.reasons_not_ready()
        await asyncio.sleep(60)
        after = fetcher.reasons_not_ready()
        fetcher.stop()
        await running
        return during, after

    (during, after), _ = in_an_outage(story, 50, begins=0)
    assert len(during) == 1
    assert re.fullmatch(
        r"this worker does not read: it has not started yet; calls to Kinesis have failed for \d\d s: .*refused.*",
        during[0],
    )
    assert after == []
