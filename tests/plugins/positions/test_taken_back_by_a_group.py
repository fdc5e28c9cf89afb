"""A group whose table refuses what is committed: the command returns its positions once nobody lives, and each row comes once."""

import asyncio

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.plugins.host.build_from_properties import build_sink
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.positions.sink_leftovers import JobLeftovers
from recordpublisher.plugins.sinks.tables.delta import DeltaLakeTable
from recordpublisher.plugins.sinks.tables.iceberg import IcebergTable
from recordpublisher.plugins.sinks.tables.sink import TableSink


class Group:
    """Starts of one group, which ends when it has read everything."""

    def __init__(self, job, kind, folder):
        self.kind, self.folder = kind, folder
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self.catalog = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
        table = {"flink.sink.delta.uri": f"{folder}/table", "flink.sink.iceberg.table": "lake.orders", **self.catalog}
        elastic = {"flink.job.workers": "GROUP", "flink.lease.duration": "2000", "flink.job.name": "orders"}
        self.properties = rp.Properties({**job, **elastic, **table, "flink.sink": kind})

    def fetcher(self):
        sink = build_sink(load_registry(), self.properties)
        return rp.DataFetcher(self.properties["flink.streams"], self.properties, sink=sink)

    async def run(self):
        async with self.fetcher() as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)

    async def take_back(self):
        job = JobLeftovers(self.properties)
        try:
            found = await job.unpublished()
            for each in found:
                await job.take_back_commits(each)
        finally:
            await job.close()
        return len(found)

    def rows(self):
        if self.kind == "delta":
            table = DeltaTable(f"{self.folder}/table").to_pyarrow_table()
        else:
            given = {key.rpartition(".")[2]: value for key, value in self.catalog.items()}
            table = load_catalog("default", **given).load_table("lake.orders").scan().to_arrow()
        return sorted(table["data"].to_pylist())


@pytest.fixture(params=["delta", "iceberg"])
def group(request, job, tmp_path):
    return Group(job, request.param, tmp_path)


@pytest.fixture
def put(kinesis, stream):
    """Put a record into each shard."""

    def put(*payloads):
        for key, data in zip(("0", str(2**127)), payloads, strict=True):
            kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k", ExplicitHashKey=key)

    return put


def refuse(monkeypatch):
    for table in (DeltaLakeTable, IcebergTable):
        monkeypatch.setattr(table, "misfit", lambda *_: "somebody has added a constraint")


async def test_the_next_start_reads_again_what_the_table_refused(group, put, monkeypatch):
    put(b"a1", b"b1")
    await group.run()
    put(b"a2", b"b2")
    with monkeypatch.context() as patched:
        refuse(patched)
        with pytest.raises(rp.StateError, match="recordpublisher leftovers PROPERTIES --take-back"):
            await group.run()
        with pytest.raises(rp.StateError, match="somebody has added a constraint"):
            await group.run()
    assert await group.take_back() == 1
    await group.run()
    assert group.rows() == [b"a1", b"a2", b"b1", b"b2"]
    assert await group.take_back() == 0


@pytest.mark.parametrize("group", ["iceberg"], indirect=True)
async def test_positions_that_were_reset_after_the_commit_stay(group, put, monkeypatch):
    put(b"a1", b"b1")
    await group.run()
    put(b"a2", b"b2")
    with monkeypatch.context() as patched:
        refuse(patched)
        with pytest.raises(rp.StateError):
            await group.run()
    await rp.reset_positions(group.properties, "TRIM_HORIZON")
    assert await group.take_back() == 1
    await group.run()
    assert group.rows() == [b"a1", b"a1", b"a2", b"b1", b"b1", b"b2"]


async def test_a_worker_that_lives_is_named(group, put, monkeypatch):
    put(b"a1", b"b1")
    with monkeypatch.context() as patched:
        refuse(patched)
        with pytest.raises(rp.StateError):
            await group.run()
    job = JobLeftovers(group.properties)
    (found,) = await job.unpublished()
    async with group.fetcher() as fetcher:
        monkeypatch.setattr(TableSink, "publish", _nothing)
        running = asyncio.create_task(fetcher.run())
        while not await living(job):  # noqa: ASYNC110 - the worker's record is in a file
            await asyncio.sleep(0.05)
        with pytest.raises(
            rp.StateError, match=r"worker [0-9a-f]{16} of the group sends heartbeats: stop all processes"
        ):
            await job.take_back_commits(found)
        fetcher.stop()
        await running
    await job.close()


async def living(job):
    """Workers that nobody has sealed."""
    records = await GroupStore(job._state).read_records()
    return [each for each in records.values() if not each.document.is_sealed]


async def _nothing(self, staged):
    """Not yet."""
