"""One subtask of a job as a separate process: writes its records to a file, with the machine's time of each write."""

import asyncio
import json
import logging
import signal
import sys
import time

import recordpublisher as rp


class TimedSink(rp.Sink):
    def __init__(self, path):
        self._file = open(path, "a", buffering=1)  # noqa: SIM115

    async def write(self, batch):
        row = [time.monotonic_ns(), batch.shard_id, [int(data) for data in batch.data]]
        self._file.write(json.dumps(row) + "\n")

    async def close(self):
        self._file.close()


async def main(url, address, path, subtask, parallelism, properties):
    given = {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "key",
        "aws.credentials.provider.basic.secretkey": "secret",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.shard.getrecords.maxrecordcount": 50,
        "flink.watermark.future.limit": -1,
        "flink.watermark.tracker": "TCP",
        "flink.watermark.tracker.address": address,
        "flink.watermark.tracker.token": "open sesame",
        **json.loads(properties),
    }
    fetcher = rp.DataFetcher(
        ["orders"],
        given,
        sink=TimedSink(path),
        timestamp_assigner=lambda record: int(record.data),
        subtask=int(subtask),
        parallelism=int(parallelism),
    )
    async with fetcher:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fetcher.stop)
        await fetcher.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))
