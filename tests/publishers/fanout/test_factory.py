"""FanOutRecordPublisherFactory: what the publishers of one job share."""

import asyncio

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import (
    ConfigurationError,
    ConsumerError,
    DataLossError,
    ImpossibleStateError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_service import ARN, EFO, SHARD, Bench, event, network, not_found, shard_end

START = StartingPosition.trim_horizon()


def test_bad_properties_are_refused_at_construction():
    with pytest.raises(ConfigurationError, match="consumername"):
        FanOutRecordPublisherFactory({})
    with pytest.raises(ConfigurationError, match=r"consumerarn\.orders"):
        FanOutRecordPublisherFactory({"flink.stream.efo.registration": "NONE"}, ["orders"])


def test_lazy_construction_calls_nobody():
    bench = Bench()
    bench.factory()
    assert bench.ports.consumers.calls == []


def test_eager_construction_with_streams_registers():
    bench = Bench()
    FanOutRecordPublisherFactory({**EFO, "flink.stream.efo.registration": "EAGER"}, ["orders"], ports=bench.ports)
    assert bench.ports.consumers.count("register") == 1


def test_shards_of_one_stream_share_a_consumer_and_read_side_by_side():
    bench = Bench((event(1), shard_end()), (event(2), shard_end()))

    async def main():
        factory = bench.factory()
        shards = [SHARD, Shard("orders", "shardId-000000000001")]
        publishers = await asyncio.gather(*[factory.create(shard, START, ShardMetrics()) for shard in shards])
        return await asyncio.gather(*[publisher.run(bench.take) for publisher in publishers])

    assert run_virtual(main()) == [RunResult.COMPLETE] * 2
    assert bench.ports.consumers.count("register") == 1
    assert {call.arn for call in bench.ports.calls} == {ARN}


def test_closing_deregisters_and_closes_the_client():
    bench = Bench((shard_end(),))

    async def main():
        await bench.read()
        await bench.made.close()
        assert (bench.ports.consumers.names, bench.ports.closed) == ([], 1)

    run_virtual(main())


def test_closing_an_unused_factory_is_nothing():
    bench = Bench()
    run_virtual(bench.factory().close())
    assert bench.ports.consumers.calls == []


def test_f8_factories_of_one_process_share_the_consumer_until_the_last_one_closes():
    bench = Bench()

    async def main():
        first, second = bench.factory(), bench.factory()
        for factory in (first, second):
            await factory.create(SHARD, START, ShardMetrics())
        await first.close()
        assert bench.ports.consumers.names == ["app"]
        await second.close()
        assert bench.ports.consumers.names == []

    run_virtual(main())


def test_f8_after_a_failed_run_the_consumer_stays():
    bench = Bench(network(), **{"flink.shard.subscribetoshard.maxretries": 0})

    async def main():
        with pytest.raises(RetriesExhaustedError):
            await bench.read()
        await bench.made.close()
        assert bench.ports.consumers.names == ["app"]

    run_virtual(main())


def test_f8_a_cancelled_run_is_a_clean_stop():
    bench = Bench((event(1), shard_end()))

    async def forever(batch):
        await asyncio.get_running_loop().create_future()

    async def main():
        task = asyncio.create_task(bench.read(consumer=forever))
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bench.made.close()
        assert bench.ports.consumers.names == []

    run_virtual(main())


def test_f8_a_closed_factory_makes_no_publishers_and_registers_nothing():
    bench = Bench()

    async def main():
        factory = bench.factory()
        await factory.close()
        await factory.create(SHARD, START, ShardMetrics())

    with pytest.raises(ImpossibleStateError, match="closed"):
        run_virtual(main())
    assert bench.ports.consumers.calls == []


def test_an_unknown_stream_is_told_by_its_first_shard():
    bench = Bench()
    with pytest.raises(StreamNotFoundError, match="oders"):
        run_virtual(bench.factory().create(Shard("oders", "shardId-000000000000"), START, ShardMetrics()))


def test_a_consumer_that_cannot_be_had_stays_as_it_is():
    bench = Bench()
    bench.ports.consumers.creating_seconds = 1_000

    async def main():
        factory = bench.factory()
        with pytest.raises(ConsumerError, match="CREATING"):
            await factory.create(SHARD, START, ShardMetrics())
        await factory.close()
        assert bench.ports.consumers.count("deregister") == 0

    run_virtual(main())


def test_f8_a_deleted_stream_or_a_lost_shard_is_no_failure_of_the_job():
    bench = Bench((not_found(),))
    bench.ports.shards = []

    async def main():
        with pytest.raises(DataLossError):
            await bench.read()
        await bench.made.close()
        assert bench.ports.consumers.names == []

    run_virtual(main())
