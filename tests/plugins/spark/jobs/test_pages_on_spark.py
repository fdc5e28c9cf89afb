"""The code blocks of the pages in `docs/spark`, as they are written, on a real Spark."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import types
import uuid
import zlib
from decimal import Decimal
from typing import Any, ClassVar
from urllib.request import urlopen

import fastavro
import pytest

import recordpublisher as rp

from processes.command_line import ROOT
from processes.documentation_page import blocks
from spark_jobs.queries import WAIT_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
PAGES = ROOT / "docs/spark"
ROW = "shardId STRING, sequenceNumber STRING, data BINARY"
ORDER = {"customer": "anna", "price": 3}


def code(page: str, file: str) -> types.SimpleNamespace:
    """What a file of a page defines. It is the main program, as a job's, so that Spark sends its functions to the workers."""
    (block,) = [block for block in blocks(PAGES / page, {}) if block.file_name == file]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block.text, file, "exec"), names)
    return types.SimpleNamespace(**names)


def rows_of(spark, *payloads: bytes):
    return spark.createDataFrame([("shard-1", str(n), data) for n, data in enumerate(payloads)], ROW)


def test_json_is_decoded_and_what_does_not_fit_is_kept_as_text(spark):
    page = code("decode.md", "decode_json.py")
    rows = rows_of(spark, json.dumps(ORDER).encode(), b"{broken", b'{"customer": "ben"}')
    assert [tuple(row) for row in page.orders(rows).collect()] == [("anna", 3.0, "0"), ("ben", None, "2")]
    assert [tuple(row) for row in page.bad_records(rows).collect()] == [("shard-1", "1", "{broken")]


def test_fields_are_columns_by_a_schema(spark, kinesis, tmp_path):
    stream = kinesis("pages-schema", 1)
    order = {"customer": "anna", "price": 3.5, "at": "2026-11-29T00:00:00Z", "address": {"country": "NO"}}
    stream.served.call(stream.stream.put, json.dumps(order).encode(), "key")
    rows: list[Any] = []
    writer = code("decode.md", "decode_schema.py").orders(spark, stream.options(tmp_path)).writeStream
    writer = writer.foreachBatch(lambda batch, number: rows.extend(batch.drop("at", "sequenceNumber").collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in rows] == [("anna", Decimal("3.50"), "NO")]


def avro(page: types.SimpleNamespace) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, page.ORDERS[7], ORDER)
    return content.getvalue()


def test_avro_with_the_header_of_confluents_registry(spark):
    page = code("decode.md", "decode_avro.py")
    rows = rows_of(spark, struct.pack(">bI", 0, 7) + avro(page))
    assert [tuple(row) for row in page.orders(rows).collect()] == [("anna", 3)]
    with pytest.raises(Exception, match="begins with 3 and not with 0"):
        page.orders(rows_of(spark, b"\x03" + bytes(30))).collect()


def test_avro_with_the_header_of_glues_registry(spark):
    page, version = code("decode.md", "decode_avro.py"), uuid.uuid4()
    plain = b"\x03\x00" + version.bytes + avro(page)
    packed = b"\x03\x05" + version.bytes + zlib.compress(avro(page))
    found = page.decoded(
        rows_of(spark, plain, packed),
        {str(version): page.ORDERS[7]},
        "STRUCT<customer: STRING, price: LONG>",
        page.glue,
    )
    assert [tuple(row) for row in found.select("value.*").collect()] == [("anna", 3)] * 2


def test_payloads_are_decompressed(spark, kinesis, tmp_path):
    stream = kinesis("pages-gzip", 1)
    stream.served.call(stream.stream.put, gzip.compress(b'{"at": 1}'), "key")
    texts: list[str] = []
    writer = code("decode.md", "compressed.py").texts(spark, stream.options(tmp_path)).writeStream
    writer = writer.foreachBatch(lambda batch, number: texts.extend(row.text for row in batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert texts == ['{"at": 1}']


def test_a_limited_batch_has_as_many_rows_as_the_page_says_and_the_progress_its_figures(spark, kinesis, tmp_path):
    stream = kinesis("pages-limit")
    stream.put(250)
    batches: list[int] = []
    rows = code("run-a-job.md", "limited.py").limited(spark, stream.options(tmp_path))
    writer = rows.writeStream.foreachBatch(lambda batch, number: batches.append(batch.count()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert max(batches) == 100
    assert sum(batches) == 250
    check_figures(query)


def check_figures(query: Any) -> None:
    """What the page says of `lastProgress`."""
    shown = code("monitor.md", "figures.py").figures(query)
    assert (shown["records"], shown["millisBehindLatest"], shown["atTip"]) == (250, 0, 2)
    progress = query.lastProgress
    (source,) = progress["sources"]
    assert {"query", "batch", "plan", "shards"} <= json.loads(source["endOffset"]).keys()
    assert all(name in progress for name in ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond"))
    assert {"latestOffset", "addBatch"} <= progress["durationMs"].keys()
    assert not source["metrics"]


class FakeTable:
    """A Delta table in memory, which reads the source of a merge twice, as Delta does. Delta is not there for this PySpark."""

    rows: ClassVar[dict[tuple[Any, ...], Any]] = {}

    @classmethod
    def forName(cls, session, name):  # noqa: N802 - Delta's name
        assert name == "orders"
        return cls()

    def alias(self, name):
        assert name == "old"
        return self

    def merge(self, source, condition):
        assert "InMemoryTableScan" in source._jdf.queryExecution().executedPlan().toString()
        self.source, self.columns = (
            source,
            [part.split(" = ")[0].removeprefix("old.") for part in condition.split(" AND ")],
        )
        return self

    def whenNotMatchedInsertAll(self):  # noqa: N802
        return self

    def execute(self):
        assert self.source.collect() == self.source.collect()
        for row in self.source.collect():
            self.rows.setdefault(tuple(row[column] for column in self.columns), row)


def test_a_batch_that_is_merged_again_adds_nothing_and_is_read_once(spark, kinesis, tmp_path, monkeypatch):
    tables = types.ModuleType("delta.tables")
    tables.DeltaTable = FakeTable  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "delta", types.ModuleType("delta"))
    monkeypatch.setitem(sys.modules, "delta.tables", tables)
    stream = kinesis("pages-merge")
    stream.put(30)
    rows = spark.read.format("kinesis").options(stream=stream.name, **stream.served.properties()).load()
    merge = code("run-a-job.md", "merge_job.py").merge_into_orders
    for _ in range(2):
        merge(rows, 0)
        assert not rows.is_cached
    assert sorted(json.loads(row.data)["n"] for row in FakeTable.rows.values()) == list(range(30))


def plain_blocks(page: str, folder: Any = "/shared") -> list[str]:
    """The blocks of Python that are not files; paths of the page are in `folder`."""
    found = blocks(PAGES / page, {"/shared/": f"{folder}/", "127.0.0.1:9249": "127.0.0.1:0"})
    return [block.text for block in found if block.language == "python" and block.file_name is None]


class AtEndpoint:
    """A session, or the rows of one, whose reads and writes have these options, too: the pages have no endpoint."""

    def __init__(self, real: Any, options: dict[str, str]) -> None:
        self._real = real
        self._options = options

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return found.options(**self._options) if name in ("read", "readStream", "writeStream") else found

    def selectExpr(self, *columns: str) -> AtEndpoint:  # noqa: N802 - Spark's name
        return AtEndpoint(self._real.selectExpr(*columns), self._options)


def test_the_first_example_reads_by_fan_out_and_a_start_by_shard_is_taken(spark, kinesis, tmp_path):
    stream = kinesis("flights")
    stream.put(20)
    example, writing, start = plain_blocks("README.md", tmp_path)
    options = {**stream.served.properties(), "startingPosition": "TRIM_HORIZON"}
    names: dict[str, Any] = {"spark": AtEndpoint(spark, options)}
    exec(example, names)
    exec(writing, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert spark.read.parquet(str(tmp_path / "flights")).count() == 20
    assert [consumer.name for consumer in stream.stream.consumers.all()] == ["flights-to-parquet"]
    exec(f"rows = (spark.read.format('kinesis').option('stream', 'flights')\n{start}\n.load())", names)
    assert "data" in names["rows"].columns


def test_a_batch_read_of_a_day_that_is_past_retention_is_empty_if_that_is_accepted(spark, kinesis):
    stream = kinesis("orders")
    stream.put(20)
    (example,) = plain_blocks("batch-reads.md")
    names: dict[str, Any] = {"spark": AtEndpoint(spark, {**stream.served.properties(), "failOnDataLoss": "false"})}
    exec(example, names)
    assert names["orders"].count() == 0


def test_listeners_are_added(spark, kinesis):
    stream, added = kinesis("flights"), []

    def add(listener: Any) -> None:
        added.append(listener)
        spark.streams.addListener(listener)

    (example,) = plain_blocks("monitor.md")
    session = types.SimpleNamespace(streams=types.SimpleNamespace(addListener=add))
    properties = {**stream.served.properties(), "flink.stream.efo.consumername": "flights-to-parquet"}
    exec(example, {"spark": session, "rp": rp, "properties": properties})
    progress, _ = added
    with urlopen(progress.url) as page:
        assert page.status == 200
    for listener in added:
        spark.streams.removeListener(listener)
    progress.close()


class EnoughError(Exception):
    """All rows are there."""


def test_rows_are_written_with_ids_and_read_without_duplicates(spark, kinesis, tmp_path):
    stream, checked = kinesis("orders"), kinesis("orders-checked")
    stream.put(20)
    write, read = plain_blocks("write.md", tmp_path)
    rows = stream.load(spark, tmp_path / "read", maxTasks=1).selectExpr("n AS price", "partitionKey AS customer")
    names: dict[str, Any] = {"orders": AtEndpoint(rows, stream.served.properties())}
    exec(write, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert len(checked.records()) == 20
    first = checked.records()[0]
    checked.served.call(checked.stream.put, first.data, first.partition_key)  # as a task that runs again
    handled: list[Any] = []

    def handle(value: Any) -> None:
        handled.append(value)
        if value["price"] == "last":
            raise EnoughError

    last = json.dumps({"price": "last", "rowId": "last"}).encode()
    for open_shard in checked.stream.open_shards:
        checked.served.call(checked.stream.put, last, "key", open_shard.hash_range.start)
    properties = {**checked.served.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
    with pytest.raises(EnoughError):
        exec(read, {"rp": rp, "properties": properties, "handle": handle})
    prices = [value["price"] for value in handled if value["price"] != "last"]
    assert len(prices) == len(set(prices))
    assert prices


FILES = {
    "decode_schema.py",
    "decode_json.py",
    "decode_avro.py",
    "compressed.py",
    "limited.py",
    "merge_job.py",
    "figures.py",
    "old_positions.py",
}
PLAIN = {"README.md": 3, "batch-reads.md": 1, "monitor.md": 1, "write.md": 2}


def test_every_block_of_these_pages_is_run():
    """Those of `test-a-job.md` and `platforms.md` are run by `tests/docs`, and `old_positions.py` by `test_new_checkpoint.py`."""
    pages = [page for page in PAGES.glob("*.md") if page.name not in ("test-a-job.md", "platforms.md")]
    found = [block for page in pages for block in blocks(page, {}) if block.language == "python"]
    assert {block.file_name for block in found} == {*FILES, None}
    assert {page.name: len(plain_blocks(page.name)) for page in pages if plain_blocks(page.name)} == PLAIN
