"""`flink.deserializer.schema` on a real Spark: the columns of a frame, in a read and in a query, and each policy for bad records."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time
from decimal import Decimal

import pytest
from every_type import SOURCES, plain

import recordpublisher as rp
from recordpublisher.plugins.spark.row_columns import spark_schema

from spark_jobs.queries import WAIT_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
SCHEMA = "id BIGINT, amount DECIMAL(12, 2), at TIMESTAMP, address STRUCT<country: STRING, lines: ARRAY<STRING>>, counts MAP<STRING, INT>"
NAMES = ["id", "amount", "at", "address", "counts"]
GOOD = {
    "id": 7,
    "amount": 9.5,
    "at": "2026-11-29T01:00:00+01:00",
    "address": {"country": "NO", "lines": ["a", None]},
    "counts": {"x": 1},
}
ROW = (7, Decimal("9.50"), datetime(2026, 11, 29, tzinfo=UTC), ("NO", ["a", None]), {"x": 1})
BAD = {**GOOD, "address": {"country": 47}}


def filled(kinesis, name, *payloads):
    stream = kinesis(name, 1)
    for payload in payloads:
        stream.served.call(
            stream.stream.put, payload if isinstance(payload, bytes) else json.dumps(payload).encode(), "key"
        )
    return stream


def given(stream, **more):
    return {
        "stream": stream.name,
        "flink.stream.initpos": "TRIM_HORIZON",
        **stream.served.endpoint.properties(),
        **more,
    }


def by_read(spark, options, folder):
    frame = spark.read.format("kinesis").options(**options).load()
    forget_schemas(folder)
    return frame.collect()


def by_query(spark, options, folder):
    frame = spark.readStream.format("kinesis").options(metadataLocation=str(folder / "claims"), **options).load()
    forget_schemas(folder)
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.read.schema(frame.schema).parquet(str(folder / "out")).collect()


def forget_schemas(folder):
    """The executors of a cluster do not see the files of the driver."""
    for path in folder.glob("*.avsc"):
        path.unlink()


READS = pytest.mark.parametrize("rows", [by_read, by_query])


def typed(row):
    """A row's fields, in Python's types; Spark's times have no zone, and are those of this machine."""
    at = row.at.astimezone(UTC)
    return (row.id, row.amount, at, tuple(row.address), row.counts)


@READS
def test_the_rows_have_the_columns_of_a_frame(spark, kinesis, tmp_path, rows):
    stream = filled(kinesis, f"schema-{rows.__name__}", GOOD, {})
    options = given(stream, **{"flink.deserializer.schema": SCHEMA})
    frame = rp.read_arrow(stream.name, options | {"stream": None}).read_all()

    found = rows(spark, options, tmp_path)
    assert list(found[0].asDict()) == frame.column_names
    assert typed(found[0]) == ROW
    assert tuple(found[1])[: len(NAMES)] == (None,) * len(NAMES)
    assert [row.sequenceNumber for row in found] == frame["sequenceNumber"].to_pylist()


@READS
def test_a_bad_record_ends_the_job_and_is_named_with_its_field_or_is_skipped(spark, kinesis, tmp_path, rows):
    stream = filled(kinesis, f"schema-bad-{rows.__name__}", BAD, GOOD, b"no JSON")
    options = given(stream, **{"flink.deserializer.schema": SCHEMA})
    with pytest.raises(Exception, match=r"\$.address.country: expected str \| null, got int"):
        rows(spark, options, tmp_path)
    # The query goes on from the same checkpoint.
    assert [typed(row) for row in rows(spark, options | {"flink.deserializer.error": "SKIP"}, tmp_path)] == [ROW]
    with pytest.raises(Exception, match=r"'flink.deserializer.error' is 'DEAD_LETTER'.*Valid: FAIL, SKIP"):
        rows(spark, options | {"flink.deserializer.error": "DEAD_LETTER"}, tmp_path)


def test_a_schema_of_the_query_chooses_columns_and_filters_work(spark, kinesis):
    stream = filled(kinesis, "schema-chosen", GOOD, {"id": 8}, {"id": 9})
    options = given(stream, **{"flink.deserializer.schema": SCHEMA})
    frame = spark.read.format("kinesis").options(**options).schema("ID BIGINT, shardId STRING").load()
    found = frame.filter("ID > 7 AND shardId IS NOT NULL").select("ID").collect()
    assert [tuple(row) for row in found] == [(8,), (9,)]


def test_a_column_that_spark_cannot_read_is_refused_when_the_stream_is_loaded(spark, kinesis):
    options = given(kinesis("schema-time", 1), **{"flink.deserializer.schema": "id BIGINT, at TIME"})
    with pytest.raises(Exception, match=r"is 'at TIME': Spark cannot read .* Valid: at STRING"):
        spark.read.format("kinesis").options(**options).load()


@READS
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_every_type_is_read_also_with_schema_files_that_only_the_driver_sees(spark, kinesis, tmp_path, kind, rows):
    source = SOURCES[kind](tmp_path, [time])
    stream = filled(kinesis, f"schema-every-{kind}-{rows.__name__}", source.payload, source.nothing)
    frame = spark_schema(rp.Properties(source.given))

    found = rows(spark, given(stream, **source.given), tmp_path)
    assert list(found[0].asDict()) == frame.names
    shown = {name: plain(found[0][name], value) for name, value in source.values.items()}
    assert shown == source.values
    assert {found[1][name] for name in source.values} == {None}
