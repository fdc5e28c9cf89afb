"""R1: a lost response was charged by the service. After 10 MiB it refuses reads for five seconds, which is longer than the retries."""

import asyncio

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.polling_shard import SHARD, FakeShard, Reader

LARGEST = [b"x" * 2**20] * 10


class Charging(FakeShard):
    """Charges a read when it arrives. Its first response is lost."""

    def __init__(self, *data, is_cut_off):
        super().__init__(*data)
        self.is_cut_off, self.arrived = is_cut_off, asyncio.Event()

    async def get_records(self, shard, iterator, limit):
        response = await super().get_records(shard, iterator, limit)
        if len(self.read_at) == 1:
            self.arrived.set()
            if self.is_cut_off:
                raise TransientError("GetRecords", "ConnectionClosedError", "in the middle of the response")
            await asyncio.sleep(60)
        return response


def read_all(data, is_cut_off):
    """The shard, the metrics, and the payloads read when the first response is lost, or the first publisher is cancelled meanwhile."""

    async def run():
        fake, metrics, reader = Charging(*data, is_cut_off=is_cut_off), ShardMetrics(), Reader()
        factory = PollingRecordPublisherFactory(Properties({}), service=fake, clock=VirtualClock())

        async def begun():
            publisher = await factory.create(SHARD, StartingPosition.trim_horizon(), metrics)
            publisher.set_read_budget(2**30)
            return asyncio.create_task(publisher.run(reader))

        reading = await begun()
        await fake.arrived.wait()
        if not is_cut_off:
            reading.cancel()
            await asyncio.wait([reading])
            reading = await begun()
        await asyncio.wait([reading], timeout=20)
        assert not reading.done(), reading
        reading.cancel()
        await asyncio.wait([reading])
        return fake, metrics, reader

    return run_virtual(run())


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "cancelled"])
def test_a_large_lost_response_does_not_use_up_the_retries(is_cut_off):
    _, metrics, reader = read_all(LARGEST, is_cut_off)

    assert reader.data == LARGEST
    assert metrics.throttles == 1


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "cancelled"])
def test_a_small_lost_response_causes_no_wait(is_cut_off):
    fake, _, _ = read_all([b"x"], is_cut_off)

    assert fake.read_at[1] - fake.read_at[0] < 2.0
