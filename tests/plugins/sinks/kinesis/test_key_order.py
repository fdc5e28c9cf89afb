"""PER_KEY: the records of a key are written in the order of their puts, whatever is sent again (K2)."""

import asyncio
from dataclasses import replace

from recordpublisher.plugins.sinks.kinesis import shard_queues
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink


class StaleKinesis(FakeKinesis):
    """The first call splits the shard. The two listings after that do not show it."""

    def __init__(self):
        super().__init__()
        self.has_call, self.has_third_listing = asyncio.Event(), asyncio.Event()
        self.before = [one.shard for one in self.shards.values()]

    async def put_records(self, stream, entries):
        if not self.calls:
            self.split("s0")
            self.has_call.set()
        return await super().put_records(stream, entries)

    async def list_shards(self, stream):
        listed = await super().list_shards(stream)
        if self.listings == 3:
            self.has_third_listing.set()
            await asyncio.sleep(0.01)
        return self.before if self.listings <= 3 else listed


def test_k4_an_aggregate_that_a_shard_of_no_listing_took_waits_for_the_listing_and_is_put_once():
    """Readers got a copy of its records for each listing without the shard, two in a second."""

    async def job():
        fake = StaleKinesis()
        async with a_sink(fake, {"AggregationEnabled": True}) as sink:
            for number in range(20):
                await sink.put(b"%d" % number, f"k{number}")
            await sink.flush()
        return sorted(int(data) for _, data in fake.user_records()), fake.listings

    assert run_virtual(job()) == (list(range(20)), 4)


def test_k2_parts_of_one_key_that_a_shard_of_no_listing_took_are_sent_again_as_one_record(monkeypatch):
    monkeypatch.setattr(shard_queues, "UNLISTED_SECONDS", 0.0)  # as for a shard that no listing has for too long

    async def job():
        fake = StaleKinesis()
        async with a_sink(fake, {"AggregationEnabled": True, "AggregationMaxCount": 2}, ordering="PER_KEY") as sink:
            await sink.put(b"k0", "k")
            await fake.has_call.wait()
            await sink.put(b"k1", "k")
            await sink.put(b"k2", "k")
            await fake.has_third_listing.wait()
            await sink.put(b"a", "a")
            await asyncio.sleep(0.05)  # less than the linger: what is sent again is queued behind this record
            await sink.flush()
        taken = [entry.data for one in fake.shards.values() for entry in one.taken]
        return [data for data in taken if b"k1" in data or b"k2" in data]

    sent = run_virtual(job())
    assert len(sent) >= 2
    assert all(b"k1" in data and b"k2" in data for data in sent)


def test_k2_puts_of_many_tasks_are_written_in_the_order_of_their_calls():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"AggregationEnabled": True}, ordering="PER_KEY") as sink:
            await asyncio.gather(*(sink.put(b"%d" % number, "k") for number in range(1_200)))
        return [int(data) for _, data in fake.user_records()]

    assert run_virtual(job()) == list(range(1_200))


def test_k2_a_record_that_waits_for_a_new_limit_keeps_its_place():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, ordering="PER_KEY") as sink:
            fake.summary = replace(fake.summary, max_record_bytes=2**21)
            await asyncio.gather(*(sink.put(data, "k") for data in (b"x" * 2**20, b"2")))
        return [data[:1] for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"x", b"2"]


def test_a_record_that_waits_for_a_new_limit_holds_up_no_other_one_without_an_order():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            fake.summary = replace(fake.summary, max_record_bytes=2**21)
            await asyncio.gather(*(sink.put(data, "k") for data in (b"x" * 2**20, b"2")))
        return [data[:1] for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"2", b"x"]


class EarlyListing(FakeKinesis):
    """The first call splits the shard. The listing after that shows the closed parent only."""

    async def put_records(self, stream, entries):
        if not self.calls:
            self.split("s0")
        return await super().put_records(stream, entries)

    async def list_shards(self, stream):
        listed = await super().list_shards(stream)
        return listed[:1] if self.listings == 2 else listed


def test_k4_a_listing_that_lacks_shards_is_listed_again():
    async def job():
        fake = EarlyListing()
        async with a_sink(fake) as sink:
            await sink.put(b"1", "k")
            await sink.flush()
            await asyncio.sleep(5)
            await sink.put(b"2", "k")
            await sink.flush()
            assert sink.metrics()["shards"] == 2
        return [data for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"1", b"2"]
