"""R1: what the service has charged for an answer that never came: ten megabytes are five seconds of refusals, longer than retries last."""

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
    """Charges a read when it comes; the first answer does not arrive."""

    def __init__(self, *data, is_cut_off):
        super().__init__(*data)
        self.is_cut_off, self.came = is_cut_off, asyncio.Event()

    async def get_records(self, shard, iterator, limit):
        response = await super().get_records(shard, iterator, limit)
        if len(self.read_at) == 1:
            self.came.set()
            if self.is_cut_off:
                raise TransientError("GetRecords", "ConnectionClosedError", "in the middle of the answer")
            await asyncio.sleep(60)
        return response


def what_was_read(data, is_cut_off):
    """The shard, the metrics, and what a publisher reads whose first answer is cut off, or whose forerunner was cancelled meanwhile."""

    async def run():
        fake, metrics, reader = Charging(*data, is_cut_off=is_cut_off), ShardMetrics(), Reader()
        factory = PollingRecordPublisherFactory(Properties({}), service=fake, clock=VirtualClock())

        async def begun():
            publisher = await factory.create(SHARD, StartingPosition.trim_horizon(), metrics)
            publisher.set_read_budget(2**30)
            return asyncio.create_task(publisher.run(reader))

        reading = await begun()
        await fake.came.wait()
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
def test_a_large_answer_that_was_lost_does_not_use_up_the_retries(is_cut_off):
    _, metrics, reader = what_was_read(LARGEST, is_cut_off)

    assert reader.data == LARGEST
    assert metrics.throttles == 1


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "cancelled"])
def test_nobody_waits_for_an_answer_that_was_small(is_cut_off):
    fake, _, _ = what_was_read([b"x"], is_cut_off)

    assert fake.read_at[1] - fake.read_at[0] < 2.0
