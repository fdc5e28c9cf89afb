"""A process that reads a queue until SIGTERM: appends each handled record to a file; at the end it prints its sums of metrics.

Arguments: the URL of the endpoint, the file.
"""

import asyncio
import json
import os
import sys

import recordpublisher as rp

URL, FILE = sys.argv[1:]
PROPERTIES = {
    "aws.endpoint": URL,
    "aws.region": "us-east-1",
    "aws.credentials.provider.basic.accesskeyid": "local",
    "aws.credentials.provider.basic.secretkey": "local",
    "flink.stream.recordpublisher": "QUEUE",
    "flink.queue.name": "work",
    "flink.queue.create": "NONE",
    "flink.queue.visibility.timeout": 5,
    "flink.queue.wait": 1,
}


async def main() -> None:
    out = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(record: rp.Record) -> None:
        await asyncio.sleep(0.02)
        os.write(out, record.data + b"\n")

    sink = rp.MapSink(handle, ordering="NONE", concurrency=8)
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink, handle_signals=True) as fetcher:
        os.close(os.open(f"{FILE}-{os.getpid()}", os.O_CREAT))  # from now on SIGTERM is handled
        await fetcher.run()
        shards = fetcher.metrics()["shards"].values()
        names = ("duplicates", "failedAcknowledgements", "unacknowledged")
        print(json.dumps({name: sum(shard[name] for shard in shards) for name in names}))


asyncio.run(main())
