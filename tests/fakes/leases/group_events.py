"""What happens to a group of elastic fetchers in a random schedule, and a look at each position that is stored."""

from __future__ import annotations

import json
import random
from typing import Any

from recordpublisher.fetcher.sink import Sink

from .elastic_processes import ElasticProcess, ElasticProcesses

PART = "group/positions/"


class GroupEvents:
    """Owns the processes of a schedule: they join and leave, records come, shards are split."""

    most_sent = 12
    """Records that come to a shard at a time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.group = ElasticProcesses(shards=chance.randint(1, 4))
        self.processes: list[ElasticProcess] = []
        write = self.group.store._write

        def checked_write(name: str, value: bytes, expected: str | None) -> str:
            version = write(name, value, expected)
            if name.startswith(PART):
                for key, epoch, stored in json.loads(value)["positions"]:
                    self.on_stored(key.partition("/")[2], epoch, int(stored.get("position", -1)))
            return version

        self.group.store._write = checked_write

    def on_stored(self, shard: str, epoch: int, position: int) -> None:
        """The position of a shard was stored."""
        raise NotImplementedError

    def new_sink(self) -> Sink:
        """The sink of a process that joins."""
        raise NotImplementedError

    async def join(self) -> None:
        if len(self.processes) < 3:
            self.processes.append(await self.group.join(sink=self.new_sink()))

    async def send(self) -> None:
        self.group.send(self.chance.randint(1, self.most_sent))

    async def leave(self) -> None:
        if self.processes:
            await self.take_out().stop()

    async def split(self) -> None:
        open_shards = [each.shard.shard_id for each in self.group.source.shards.values() if not each.closed]
        if len(open_shards) < 6 and self.chance.random() < 0.5:
            parent = self.chance.choice(open_shards)
            self.group.source.split(parent, f"{parent}-l", f"{parent}-r")

    def take_out(self) -> Any:
        """One of the processes, which is about to end."""
        return self.processes.pop(self.chance.randrange(len(self.processes)))
