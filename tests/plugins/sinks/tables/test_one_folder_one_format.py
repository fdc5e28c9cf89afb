"""A table and a sink of files do not share a folder: readers of all Parquet files below it would read rows of both."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.tables.delta import DeltaSink
from recordpublisher.publishers.errors import ConfigurationError

from fakes.batches import batch
from fakes.commits.committing_sink import snapshot_at, started


async def committed(sink):
    job = await started(sink)
    await sink.write(batch(b"1"))
    await job.checkpoint(snapshot_at(1))
    await sink.close()


def parquet(folder):
    return rp.ParquetSink(rp.Properties({"flink.sink.parquet.path": str(folder)}))


def delta(folder):
    return DeltaSink(rp.Properties({"flink.sink.delta.uri": str(folder)}))


async def test_files_are_not_written_into_a_delta_table(tmp_path):
    await committed(delta(tmp_path / "orders"))

    with pytest.raises(ConfigurationError, match="folder of a table of Delta or Iceberg"):
        await parquet(tmp_path / "orders").open(rp.SinkContext())


async def test_a_delta_table_is_not_made_among_files(tmp_path):
    await committed(parquet(tmp_path / "orders"))

    with pytest.raises(ConfigurationError, match="the sink jsonl or parquet has its files there"):
        await committed(delta(tmp_path / "orders"))


async def test_each_goes_on_in_its_own_folder(tmp_path):
    for sink in (parquet, delta):
        await committed(sink(tmp_path / sink.__name__))
        await committed(sink(tmp_path / sink.__name__))
