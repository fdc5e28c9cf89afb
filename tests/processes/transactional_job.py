"""A user's job that commits rows and state to SQLite in one transaction. It runs as a process, so that tests can kill it."""

import asyncio
import json
import sqlite3
import sys

import recordpublisher as rp


class SqliteSink(rp.Sink):
    """Keeps rows until a checkpoint, then commits them together with the state (S6)."""

    def __init__(self, path):
        self._database = sqlite3.connect(path)
        self._database.execute("create table if not exists rows (shard text, sequence text, payload text)")
        self._database.execute("create table if not exists state (id integer primary key, content text)")
        self._pending = []

    async def open(self, context):
        found = self._database.execute("select content from state where id = 0").fetchone()
        return None if found is None else json.loads(found[0])

    async def write(self, batch):
        self._pending += zip([batch.shard_id] * len(batch), batch.sequence_numbers, batch.values, strict=True)

    async def flush(self, checkpoint=None):
        if checkpoint is None:
            return
        with self._database:
            self._database.executemany("insert into rows values (?, ?, ?)", self._pending)
            self._database.execute("insert or replace into state values (0, ?)", [json.dumps(dict(checkpoint.state))])
        self._pending.clear()

    async def close(self):
        self._database.close()


async def main(url, path, publisher):
    properties = {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "key",
        "aws.credentials.provider.basic.secretkey": "secret",
        "flink.stream.recordpublisher": publisher,
        "flink.stream.efo.consumername": "job",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.deserializer": "text",
        "flink.shard.getrecords.maxrecordcount": 200,
    }
    async with rp.DataFetcher(["orders"], properties, sink=SqliteSink(path)) as fetcher:
        running = asyncio.create_task(fetcher.run())
        while not running.done():
            await asyncio.sleep(0.1)
            await fetcher.checkpoint()
        await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
