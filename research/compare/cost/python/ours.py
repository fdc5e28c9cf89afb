"""Reads with this library, everything on, as its quick start does: URL polling|fan-out WARM SEGMENT SEGMENTS."""

import asyncio
import sys

from meter import Meter

import recordpublisher as rp


class Measured(rp.Sink):
    """Hands the data of each batch to the meter."""

    def __init__(self, meter):
        self._meter = meter

    async def write(self, batch):
        self._meter.add(batch.data)


async def main(url, how, *numbers):
    properties = {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "local",
        "aws.credentials.provider.basic.secretkey": "local",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.stream.recordpublisher": "POLLING" if how == "polling" else "EFO",
        "flink.stream.efo.consumername": "ours",
    }
    async with rp.DataFetcher(["cost"], properties, sink=Measured(Meter(*numbers))) as fetcher:
        await fetcher.run()


asyncio.run(main(*sys.argv[1:]))
