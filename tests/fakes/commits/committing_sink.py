"""A committing sink of a list: what others are compared with."""

from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.elastic.alone_worker import AloneWorker
from recordpublisher.fetcher.elastic.job_storage import JobStorage
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import GroupJob
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import CommittingSink, SinkContext, Staged
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition


class Table:
    """Owns the rows that readers see, and what is staged, by a name that begins with the life."""

    def __init__(self):
        self.rows = []
        self.staged = {}


class TableSink(CommittingSink):
    """Stages payloads under `life/n`; publishing moves them into the table."""

    def __init__(self, table, entries=None):
        self.table = table
        self.life = "open"
        self.waiting = []
        self._entries = entries

    def entries(self):
        return self._entries

    async def begin(self, life):
        self.life, self.waiting = life, []

    async def write(self, batch):
        self.waiting += [(batch.shard.key, payload) for payload in batch.data]

    def revoked(self, shards):
        self.waiting = [row for row in self.waiting if row[0] not in shards]

    async def stage(self, number):
        rows, self.waiting = self.waiting, []
        if not rows:
            return None
        name = f"{self.life}/{number.n}"
        self.table.staged[name] = [payload for _, payload in rows]
        return Staged(number, {"name": name})

    async def publish(self, staged):
        for each in staged:
            self.table.rows += self.table.staged.pop(each.content["name"], [])

    async def discard(self, has_ended, kept):
        named = {each.content["name"] for each in kept}
        for name in self.table.staged.keys() - named:
            if has_ended(name.partition("/")[0]):
                del self.table.staged[name]


class NoRivals:
    """Starts of a test replace each other at once."""

    replaced_ms = None

    async def wait(self, found):
        return False


class Start:
    """One start of a job, as far as its commits: its sink, open, and what it has restored."""

    def __init__(self, sink, context=SinkContext(), store=None, job="job", clock=None):  # noqa: B008 - frozen
        self.sink = sink
        self.context = context
        place = JobStorage(store or sink.entries(), LeaseSettings(20.0), job)
        named = GroupJob(sink.destination(), ("orders",), sink.entries() is not None, job)
        self.alone = AloneWorker(place, named, sink, clock or SystemClock())
        self.alone._rivals = NoRivals()

    @property
    def life(self):
        """The name of this start."""
        return self.alone.name

    async def open(self):
        """Take the rows over, and return what is stored: no snapshot, or one."""
        await self.sink.open(self.context)
        _, states = await self.alone.open()
        self.restored = [
            snapshot_of(**{key: one["position"] for key, one in each["shards"].items()}) for each in states
        ]
        return self.restored

    async def checkpoint(self, state):
        await self.alone.settle()
        await self.alone.commit(state)
        await self.alone.publish()


def snapshot_of(**positions):
    """A snapshot with the position of each shard."""
    first = StartingPosition.trim_horizon()
    return snapshot_to_json({key: ShardState(first, SequenceNumber(str(at))) for key, at in positions.items()}, None, 1)


def snapshot_at(position, shard="orders/shardId-0"):
    """A snapshot of one shard."""
    return snapshot_of(**{shard: position})


async def started(sink, context=SinkContext(), **more):  # noqa: B008 - frozen
    start = Start(sink, context, **more)
    await start.open()
    return start
