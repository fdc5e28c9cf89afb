"""Prints what this library reads, with positions in a folder: URL POLLING|EFO FOLDER."""

import asyncio
import sys

import recordpublisher as rp


class Print(rp.Sink):
    """Prints each record of a batch: what was printed and not yet checkpointed comes again after a kill."""

    async def write(self, batch):
        for record in batch:
            print(record.shard_id, record.data.decode())
        sys.stdout.flush()


async def main(url, publisher, folder):
    properties = {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "local",
        "aws.credentials.provider.basic.secretkey": "local",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.stream.recordpublisher": publisher,
        "flink.stream.efo.consumername": "ours",
        "flink.shard.discovery.intervalmillis": "1000",
        "flink.state.uri": folder,
        "flink.state.checkpoint.interval": "500",
    }
    async with rp.DataFetcher(["orders"], properties, sink=Print()) as fetcher:
        await fetcher.run()


asyncio.run(main(*sys.argv[1:]))
