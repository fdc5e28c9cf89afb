"""The built-in sinks pass the contract of sinks (S1, S6)."""

import json
import sqlite3
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.testing import CommittingSinkContract, SinkCase, SinkContract


class TestMemory(SinkContract):
    @asynccontextmanager
    async def open_case(self):
        sinks = []

        def start():
            sinks.append(rp.MemorySink())
            return sinks[-1]

        async def written():
            return [record.data for sink in sinks for record in sink.records]

        yield SinkCase(start, written)


class TestCallback(SinkContract):
    def sink(self, payloads):
        return rp.CallbackSink(function=lambda batch: payloads.extend(batch.data))

    @asynccontextmanager
    async def open_case(self):
        payloads = []

        async def written():
            return payloads

        yield SinkCase(lambda: self.sink(payloads), written)


class TestMap(TestCallback):
    def sink(self, payloads):
        async def handle(record):
            payloads.append(record.data)

        return rp.MapSink(handle)


class TestReactive(SinkContract):
    @asynccontextmanager
    async def open_case(self):
        payloads = []

        async def written():
            return payloads

        def start():
            sink = rp.ReactiveSink(buffer=10)
            sink.records.subscribe(lambda record: payloads.append(record.data))
            return sink

        yield SinkCase(start, written)


class TestKinesis(SinkContract):
    deadline = 60.0  # a shared machine may be slow

    @asynccontextmanager
    async def open_case(self):
        async with LocalKinesis(streams={"copy": 1}) as endpoint:
            properties = endpoint.properties()

            async def written():
                copied = rp.MemorySink()
                start = {"flink.stream.initpos": "TRIM_HORIZON"}
                async with rp.DataFetcher("copy", properties | start, sink=copied) as fetcher:
                    await fetcher.run_bounded(stop_at_tip=True)
                return [record.data for record in copied.records]

            yield SinkCase(lambda: rp.KinesisSink("copy", properties, ordering="PER_KEY"), written)


class InFolder(CommittingSinkContract):
    deadline = 60.0  # a shared machine may be slow

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def sink(self):
        raise NotImplementedError

    def payloads(self):
        raise NotImplementedError

    @asynccontextmanager
    async def open_case(self):
        async def written():
            return self.payloads()

        yield SinkCase(self.sink, written)


class TestJsonl(InFolder):
    def sink(self):
        return rp.JsonlSink(rp.Properties(sink_jsonl_path=str(self.folder)))

    def payloads(self):
        lines = [line for file in sorted(self.folder.rglob("*.jsonl")) for line in file.read_text().splitlines()]
        return [json.loads(line)["data"].encode() for line in lines]


class TestParquet(InFolder):
    def sink(self):
        return rp.ParquetSink(rp.Properties(sink_parquet_path=str(self.folder)))

    def payloads(self):
        tables = [pyarrow.parquet.read_table(file) for file in sorted(self.folder.rglob("*.parquet"))]
        return [payload for table in tables for payload in table["data"].to_pylist()]


class TestDelta(InFolder):
    def sink(self):
        return rp.DeltaSink(rp.Properties(sink_delta_uri=str(self.folder / "table")))

    def payloads(self):
        return _in_order(DeltaTable(self.folder / "table").to_pyarrow_table())


class TestIceberg(InFolder):
    @asynccontextmanager
    async def open_case(self):
        async with super().open_case() as case:
            yield replace(case, state_store=FolderStore(self.folder / "state", None))

    @property
    def catalog(self):
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/lake"}

    def sink(self):
        given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in self.catalog.items()}
        return rp.IcebergSink(
            rp.Properties(given, sink_iceberg_table="lake.orders", state_uri=str(self.folder / "state"))
        )

    def payloads(self):
        return _in_order(load_catalog("default", **self.catalog).load_table("lake.orders").scan().to_arrow())


def _in_order(table):
    rows = table.select(["shardId", "sequenceNumber", "data"]).to_pylist()
    return [row["data"] for row in sorted(rows, key=lambda row: (row["shardId"], int(row["sequenceNumber"])))]


class TestSql(InFolder):
    def sink(self):
        uri = f"sqlite:///{self.folder}/job.db"
        return rp.SqlSink(rp.Properties(sink_sql_uri=uri, job_name="job"))

    def payloads(self):
        with closing(sqlite3.connect(self.folder / "job.db")) as database:
            return [data for (data,) in database.execute("SELECT data FROM records ORDER BY rowid")]
