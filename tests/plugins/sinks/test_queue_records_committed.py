"""Sinks that commit rows with positions write the records of a queue as well, which are acknowledged after their commit."""

import asyncio
import sqlite3

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.kinesis_queue_source import QueueClient

ROWS = 300


async def write(served, properties):
    async with QueueClient(rp.Properties(served.properties())) as client:
        await client._call("CreateStream", StreamName="orders", StreamModeDetails={"StreamMode": "ON_DEMAND"})
        arn = await client.stream_arn("orders")
        await client.create_queue("work", arn, {"Type": "TRIM_HORIZON"}, 30)
        queue = {"flink.stream.recordpublisher": "QUEUE", "flink.queue.name": "work", "flink.queue.wait": 1}
        for number in range(ROWS):
            await asyncio.to_thread(served.call, served.endpoint.account.find("orders").put, b"%d" % number, "k")
        async with rp.DataFetcher("orders", {**served.properties(), **queue, **properties}) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
        return await client.receive((await client.queues_of(arn))[0].arn, 1, 30)


def test_json_lines(tmp_path):
    with serve_in_thread() as served:
        left = asyncio.run(write(served, {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path)}))
    lines = [line for file in tmp_path.rglob("*.jsonl") for line in file.read_text().splitlines()]

    assert (len(lines), left) == (ROWS, [])


def test_a_database(tmp_path):
    given = {
        "flink.job.name": "work",
        "flink.sink": "sql",
        "flink.sink.sql.uri": f"sqlite:///{tmp_path}/db",
        "flink.sink.sql.table": "orders",
    }
    with serve_in_thread() as served:
        left = asyncio.run(write(served, given))
    database = sqlite3.connect(tmp_path / "db")
    rows = database.execute("select count(*) from orders").fetchone()
    database.close()

    assert (rows, left) == ((ROWS,), [])
