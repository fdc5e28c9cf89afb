"""What a job that runs alone stores in a place, without a fetcher."""

import itertools

from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.elastic.alone_worker import AloneWorker
from recordpublisher.fetcher.elastic.job_storage import JobStorage
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import GroupJob
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.lag.job_state import JobStateReader
from recordpublisher.plugins.sinks.callback import MemorySink
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

SHARD = "orders/shardId-000000000000"


class LaterClock(SystemClock):
    """The clock of a start more than a minute after the last one, so that the two are not two supervisors that replace each other."""

    def __init__(self):
        self._ahead_ms = 61_000 * next(_STARTS)

    def now_ms(self):
        return super().now_ms() + self._ahead_ms


_STARTS = itertools.count()


def alone_worker(store, name=None, sink=None):
    """The worker of one start."""
    job = GroupJob("memory", None, False, name)
    return AloneWorker(JobStorage(store, LeaseSettings(20.0), name), job, sink or MemorySink(), LaterClock())


def snapshot_at(sequence, shard=SHARD):
    """A snapshot of one shard that was read up to a record."""
    return snapshot_to_json(
        {shard: ShardState(StartingPosition.trim_horizon(), SequenceNumber(str(sequence)))}, None, 1
    )


async def store_alone(store, snapshot, name=None):
    """Start a job, and store a snapshot; its worker, which was not stopped."""
    alone = alone_worker(store, name)
    await alone.open()
    await alone.store(snapshot)
    return alone


async def states_in(store):
    """The stored states by shard, as plain dicts."""
    return {key: state for each in await JobStateReader(store).load() for key, state in each["shards"].items()}
