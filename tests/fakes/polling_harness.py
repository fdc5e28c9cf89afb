"""A polling publisher over a shard in memory on virtual time, and the consumer that reads it."""

import asyncio

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import (
    ResourceNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.polling import PollingConfig, PollingRecordPublisher
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.polling_shard import SHARD

BROKEN = TransientError("GetRecords", "InternalFailure", "oh")
THROTTLED = ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "slow down")
NOT_FOUND = ResourceNotFoundError("GetRecords", "ResourceNotFoundException", "no such shard")


class Reader:
    """A consumer that keeps what it got and answers the read position, or what `answers` says."""

    def __init__(self, hold=0.0, answers=None, stop_after=None):
        self.batches = []
        self.at = []
        self._hold = hold
        self._answers = list(answers or [])
        self._stop_after = stop_after

    async def __call__(self, batch):
        self.batches.append(batch)
        self.at.append(asyncio.get_running_loop().time())
        if len(self.batches) == self._stop_after:
            raise StopError
        await asyncio.sleep(self._hold.pop(0) if isinstance(self._hold, list) and self._hold else self._hold or 0)
        return self._answers.pop(0) if self._answers else batch.read_position

    @property
    def data(self):
        return [record.data for batch in self.batches for record in batch.records]


class StopError(Exception):
    pass


def publisher_of(fake, position=None, metrics=None, shard=SHARD, **properties):
    prefixes = {"adaptivereads": "flink.shard."}
    given = {prefixes.get(key, "flink.shard.getrecords.") + key: value for key, value in properties.items()}
    config = PollingConfig.of(Properties(given))
    position = position or StartingPosition.trim_horizon()
    return PollingRecordPublisher(fake, shard, position, config, metrics or ShardMetrics(), VirtualClock())


async def published(fake, consumer, **more):
    return await publisher_of(fake, **more).run(consumer)


def read(fake, reader=None, **more):
    """Read to the shard's end, or until the reader stops."""
    reader = reader or Reader()

    async def run():
        try:
            return await publisher_of(fake, **more).run(reader)
        except StopError:
            return RunResult.CANCELLED

    return reader, run_virtual(run())
