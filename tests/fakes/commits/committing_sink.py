"""A committing sink of a list: what others are compared with."""

from recordpublisher.fetcher.checkpoints.subtask_commits import SubtaskCommits
from recordpublisher.fetcher.committing_sink import CommittingSink, Staged
from recordpublisher.fetcher.sink import SinkContext


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


class Start:
    """One start of a subtask, as far as its commits: its sink, open, and what it has restored."""

    def __init__(self, sink, context=SinkContext(), store=None, job="job"):  # noqa: B008 - frozen
        self.sink = sink
        self.context = context
        self.commits = SubtaskCommits(sink, sink.entries() or store, job, context.subtask, context.parallelism)

    async def open(self):
        await self.sink.open(self.context)
        return await self.commits.open()

    async def checkpoint(self, state):
        await self.commits.settle()
        await self.commits.commit(state)
        await self.commits.publish()


async def started(sink, context=SinkContext(), **more):  # noqa: B008 - frozen
    start = Start(sink, context, **more)
    await start.open()
    return start
