"""FanOutRecordPublisherFactory: the client and consumers that the publishers of one job share."""

import asyncio

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError, StreamNotFoundError
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import ARN, EFO, SHARD, event, shard_end

START = StartingPosition.trim_horizon()


def test_bad_properties_are_refused_at_construction():
    with pytest.raises(ConfigurationError, match="consumername"):
        FanOutRecordPublisherFactory({})
    with pytest.raises(ConfigurationError, match=r"consumerarn\.orders"):
        FanOutRecordPublisherFactory({"flink.stream.efo.registration": "NONE"}, ["orders"])


def test_lazy_construction_makes_no_call():
    harness = FanOutHarness()
    harness.factory()
    assert harness.ports.consumers.calls == []


def test_eager_construction_with_streams_registers():
    harness = FanOutHarness()
    FanOutRecordPublisherFactory({**EFO, "flink.stream.efo.registration": "EAGER"}, ["orders"], ports=harness.ports)
    assert harness.ports.consumers.count("register") == 1


def test_shards_of_one_stream_share_a_consumer_and_read_concurrently():
    harness = FanOutHarness((event(1), shard_end()), (event(2), shard_end()))

    async def main():
        factory = harness.factory()
        shards = [SHARD, Shard("orders", "shardId-000000000001")]
        publishers = await asyncio.gather(*[factory.create(shard, START, ShardMetrics()) for shard in shards])
        return await asyncio.gather(*[publisher.run(harness.take) for publisher in publishers])

    assert run_virtual(main()) == [RunResult.COMPLETE] * 2
    assert harness.ports.consumers.count("register") == 1
    assert {call.arn for call in harness.ports.calls} == {ARN}


def test_closing_deregisters_and_closes_the_client():
    harness = FanOutHarness((shard_end(),))

    async def main():
        await harness.read()
        await harness.made.close()
        assert (harness.ports.consumers.names, harness.ports.closed) == ([], 1)

    run_virtual(main())


def test_closing_an_unused_factory_makes_no_call():
    harness = FanOutHarness()
    run_virtual(harness.factory().close())
    assert harness.ports.consumers.calls == []


def test_f8_factories_of_one_process_share_the_consumer_until_the_last_one_closes():
    harness = FanOutHarness()

    async def main():
        first, second = harness.factory(), harness.factory()
        for factory in (first, second):
            await factory.create(SHARD, START, ShardMetrics())
        await first.close()
        assert harness.ports.consumers.names == ["app"]
        await second.close()
        assert harness.ports.consumers.names == []

    run_virtual(main())


def test_f8_a_cancelled_run_is_a_clean_stop():
    harness = FanOutHarness((event(1), shard_end()))

    async def forever(batch):
        await asyncio.get_running_loop().create_future()

    async def main():
        task = asyncio.create_task(harness.read(consumer=forever))
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await harness.made.close()
        assert harness.ports.consumers.names == []

    run_virtual(main())


def test_f8_a_closed_factory_makes_no_publishers_and_registers_nothing():
    harness = FanOutHarness()

    async def main():
        factory = harness.factory()
        await factory.close()
        await factory.create(SHARD, START, ShardMetrics())

    with pytest.raises(ImpossibleStateError, match="closed"):
        run_virtual(main())
    assert harness.ports.consumers.calls == []


def test_an_unknown_stream_is_an_error_at_its_first_shard():
    harness = FanOutHarness()
    with pytest.raises(StreamNotFoundError, match="oders"):
        run_virtual(harness.factory().create(Shard("oders", "shardId-000000000000"), START, ShardMetrics()))
