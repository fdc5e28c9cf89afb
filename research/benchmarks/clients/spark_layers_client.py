"""A process that reads the replayed stream as a Spark task does: URL; prints microseconds of its CPU per record by layer, as JSON.

`columns` and `hand-off` (Arrow's stream format, as Spark's worker writes it to its socket) are timed where they happen; `decode` is the
rest of the process: calls, responses, records, queues.
"""

import asyncio
import json
import subprocess
import sys
import time

import pyarrow as pa

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.plugins.runtime.shard_lister import ShardLister
from recordpublisher.plugins.runtime.stream_names import stream_names
from recordpublisher.plugins.spark.arrow_rows import ArrowRows, ReusedMemory
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties

from benchmarks.clients.pipeline_client import access_to


class TimedRows(ArrowRows):
    """Measures the time of building its columns."""

    seconds = 0.0

    def build(self):
        began = time.thread_time()
        super().build()
        self.seconds += time.thread_time() - began


class Listing(RecordPublisherFactory):
    async def create(self, shard, starting_position, metrics):
        raise NotImplementedError


async def main(url):
    properties = Properties(access_to(url, "POLLING"))
    lister = ShardLister(Listing(), properties, stream_names(["replay"]), SystemClock())
    shards = await lister.list_shards("replay")
    await lister.close()
    states = {shard: ShardState(StartingPosition.trim_horizon()) for shard in shards}
    reader = BoundedReader(properties)
    spent = {}
    memory = ReusedMemory()
    for _ in range(2):  # the first round warms up
        rows = TimedRows(memory=memory)
        began = time.process_time()
        result = await reader.read(states, rows, Bounds(max_records=len(shards) * 20_000))
        read = time.process_time() - began
        began = time.process_time()
        drain(rows)
        spent = {
            "decode": (read - rows.seconds) / result.records * 1e6,
            "columns": rows.seconds / result.records * 1e6,
            "hand-off": (time.process_time() - began) / result.records * 1e6,
        }
    await reader.close()
    print(json.dumps(spent))


def drain(rows):
    """Send to another process, which drops it."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as other:
        assert other.stdin is not None
        with pa.ipc.new_stream(other.stdin, RECORD_SCHEMA) as stream:
            for batch in rows.drain():
                stream.write_batch(batch)
        other.stdin.close()


asyncio.run(main(*sys.argv[1:]))
