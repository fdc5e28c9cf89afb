"""The code blocks of the pages about decoding, limits, MERGE and figures, as they are written, on a real Spark."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import types
import uuid
import zlib
from typing import Any, ClassVar

import fastavro
import pytest

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
    shown = code("README.md", "figures.py").figures(query)
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


def test_every_block_of_these_pages_is_a_file_that_a_test_runs():
    run = {"decode_json.py", "decode_avro.py", "compressed.py", "limited.py", "merge_job.py"}
    named = {
        block.file_name
        for page in ("decode.md", "run-a-job.md")
        for block in blocks(PAGES / page, {})
        if block.language == "python"
    }
    assert named == run
