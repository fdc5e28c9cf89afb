import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.polling_shard import SHARD, FakeShard
from servers.scripted_kinesis import PROPERTIES


def test_a_service_and_a_clock_can_be_passed():
    fake = FakeShard(b"1", closed=True)

    async def run():
        factory = PollingRecordPublisherFactory(Properties({}), service=fake, clock=VirtualClock())
        publisher = await factory.create(SHARD, StartingPosition.trim_horizon(), ShardMetrics())
        assert fake.positions == []
        result = await publisher.run(keep)
        await factory.close()
        return result

    async def keep(batch):
        return batch.read_position

    assert run_virtual(run()) is RunResult.COMPLETE


def test_p3_latest_is_pinned_to_the_servers_clock():
    fake = FakeShard(closed=True)

    async def run():
        factory = PollingRecordPublisherFactory(Properties({}), service=fake, clock=VirtualClock())
        publisher = await factory.create(SHARD, StartingPosition.latest(), ShardMetrics())

        async def keep(batch):
            return batch.read_position

        await publisher.run(keep)

    run_virtual(run())
    assert fake.positions == [StartingPosition.at_timestamp(EPOCH_MS)]


async def test_all_publishers_share_one_client_which_close_closes():
    factory = PollingRecordPublisherFactory(Properties(PROPERTIES))
    first = await factory.create(SHARD, StartingPosition.trim_horizon(), ShardMetrics())
    second = await factory.create(SHARD, StartingPosition.trim_horizon(), ShardMetrics())
    assert first._service is second._service
    await factory.close()
    await factory.close()


def test_c2_bad_properties_fail_at_construction():
    with pytest.raises(ConfigurationError, match="maxrecordcount"):
        PollingRecordPublisherFactory(Properties({"flink.shard.getrecords.maxrecordcount": "lots"}))


@pytest.mark.parametrize("bad", [{"aws.endpoint": "nowhere"}, {"aws.credentials.provider": "PROFILE"}])
def test_c2_the_properties_of_the_client_are_checked_at_construction_of_the_job(bad):
    factory = PollingRecordPublisherFactory({"aws.region": "eu-west-1", **bad})
    with pytest.raises(ConfigurationError):
        factory.prepare(["orders"])


def test_the_region_is_taken_from_the_arns_of_the_jobs_streams():
    factory = PollingRecordPublisherFactory(Properties({}))
    factory.prepare(["arn:aws:kinesis:eu-central-1:123456789012:stream/orders"])
    assert factory._own_client._transports.for_stream(None)._region == "eu-central-1"
