"""A process that reads the replayed stream by fan-out into a sink: URL nothing|arrow|parquet|delta RECORDS.

`arrow` makes Arrow columns of each batch and drops them; `parquet` and `delta` are the sinks, with a checkpoint each ten seconds, in a
folder that is removed. Prints microseconds of its CPU per record, all threads, with the last checkpoint.
"""

import asyncio
import sys
import tempfile
import time

import pyarrow as pa

import recordpublisher as rp
from recordpublisher.plugins.columns.record_columns import arrow_columns

from benchmarks.clients.pipeline_client import NoSink, properties_of


class ArrowSink(rp.Sink):
    """Makes columns, as every sink for Arrow has to."""

    async def write(self, batch):
        arrow_columns(batch)


async def main(url, what, records):
    with tempfile.TemporaryDirectory() as folder:
        properties = {
            **properties_of(url, "EFO", "off"),
            "flink.sink.parquet.path": folder,
            "flink.sink.delta.uri": folder,
        }
        if what in ("parquet", "delta"):
            properties["flink.state.checkpoint.interval"] = 10_000
        sinks = {
            "nothing": lambda _: NoSink(),
            "arrow": lambda _: ArrowSink(),
            "parquet": rp.ParquetSink,
            "delta": rp.DeltaSink,
        }
        sink = sinks[what](rp.Properties(properties))
        async with rp.DataFetcher(["replay"], properties, sink=sink) as fetcher:
            pa.array([""])  # imports pandas, once for each process: no cost of a record
            before = time.process_time()
            result = await fetcher.run_bounded(stop_at_tip=True)
            spent = time.process_time() - before
    assert result.records == int(records), result
    print(spent / result.records * 1e6)


asyncio.run(main(*sys.argv[1:]))
