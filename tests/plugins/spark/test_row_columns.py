"""The columns of the source: the record's own or those of `flink.deserializer.schema`; and those that a query's schema chooses."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import recordpublisher as rp
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.spark import KinesisSource
from recordpublisher.plugins.spark.arrow_rows import ArrowRows, ReusedMemory
from recordpublisher.plugins.spark.row_columns import RowColumns, spark_schema
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

SCHEMA = "id BIGINT, amount DECIMAL(12, 2), stops ARRAY<STRUCT<at: TIMESTAMP>>, shardId INT"
METADATA = [name for name in RECORD_SCHEMA.names if name not in ("data", "shardId")]
TASK = ReusedMemory()


def chosen(given=None, **types):
    fields = [StructField(name, type_() if isinstance(type_, type) else type_) for name, type_ in types.items()]
    return RowColumns.chosen(StructType(fields), Properties(given or {}))


def schema(columns, **more):
    return Properties({"flink.deserializer.schema": columns, **more})


async def rows_of(columns, *payloads):
    """What Spark gets of records that are decoded as in a task."""
    batch = RecordBatch(Shard("s", "a"), [UserRecord(data, str(n), 1.0, "k") for n, data in enumerate(payloads)])
    rows = ArrowRows(columns, may_drop=True)
    await rows.write(batch.with_columns(values=columns.values.values(batch)))
    return rows


def test_only_the_chosen_columns_are_built_in_their_order():
    columns = chosen(data=BinaryType, eventTime=TimestampType, subSequenceNumber=LongType, shardId=StringType)
    rows = columns.batch([RecordBatch(Shard("s", "a"), [UserRecord(b"x", "1", 1.0, "k")])], TASK.joined)
    assert rows.schema.names == ["data", "eventTime", "subSequenceNumber", "shardId"]
    ((data, time, sub, shard),) = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    assert (data, time.timestamp(), sub, shard) == (b"x", 1.0, -1, "a")


async def test_names_ignore_case_and_the_rows_have_the_names_of_the_schema():
    rows = ArrowRows(chosen(DATA=BinaryType, shardid=StringType))
    await rows.write(RecordBatch(Shard("s", "a"), [UserRecord(b"x", "1", 1.0, "k")]))
    (batch,) = rows.drain()
    assert batch.to_pydict() == {"DATA": [b"x"], "shardid": ["a"]}


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"data": StringType}, "is 'data STRING'. Valid: data BINARY"),
        ({"subSequenceNumber": StringType}, "Valid: subSequenceNumber LONG"),
        (
            {"key": StringType},
            "is 'key': there is no such column; its name here is partitionKey. Valid: stream STRING",
        ),
        ({"streamName": StringType}, "there is no such column; its name here is stream. Valid: "),
        ({"Value": BinaryType}, "there is no such column; its name here is data. Valid: "),
        ({"colour": StringType}, "there is no such column. Valid: stream STRING, shardId STRING"),
    ],
)
def test_c2_a_wrong_column_is_named_with_what_is_valid(types, words):
    with pytest.raises(ConfigurationError) as raised:
        chosen(**types)
    assert words in str(raised.value)


def test_the_fields_of_a_schema_are_columns_as_in_a_frame():
    frame = rp.read_arrow("orders", {"aws.region": "eu-west-1"}, deserializer_schema=SCHEMA)
    columns = spark_schema(schema(SCHEMA))
    assert columns.names == frame.schema.names == ["id", "amount", "stops", "shardId", *METADATA]
    types = [field.dataType for field in columns[:4]]
    stop = StructType([StructField("at", TimestampType())])
    assert types == [LongType(), DecimalType(12, 2), ArrayType(stop), IntegerType()]


async def test_a_query_chooses_fields_and_metadata_and_a_field_hides_the_metadata_of_its_name():
    columns = chosen(schema(SCHEMA), SHARDID=IntegerType, stream=StringType, amount=DecimalType(12, 2))
    rows = await rows_of(columns, b'{"shardId": 7, "amount": 9.5}', b'{"id": 1}', b"{}")
    assert rows.keep_until("s/a", ("1", -1)) == 2
    (batch,) = rows.drain()
    assert batch.to_pydict() == {"SHARDID": [7, None], "stream": ["s", "s"], "amount": [Decimal("9.50"), None]}


async def test_a_value_that_fits_the_schema_and_not_the_column_is_a_bad_record_that_is_named():
    given = schema("id BIGINT, prices ARRAY<DECIMAL(4, 2)>")
    reason = "record 1 of s/a.*field 'prices'.*100.5 has too many digits: at most 2 digits before the point"
    rows = await rows_of(chosen(given, id=LongType), b'{"prices": [1.5]}', b'{"prices": [100.5]}')
    with pytest.raises(DeserializationError, match=reason):
        rows.build()
    with pytest.raises(ValueError, match=r"100\.5 has too many digits"):
        await rows_of(chosen(given.merged({"flink.deserializer.error": "SKIP"}), id=LongType), b'{"prices": [100.5]}')


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"id": StringType}, "is 'id string'. Valid: id BIGINT"),
        ({"data": BinaryType}, "there is no such column. Valid: id BIGINT, amount DECIMAL(12, 2), stops ARRAY<STRUCT<"),
        ({"value": BinaryType}, "is 'value': there is no such column. Valid: id BIGINT"),
        (
            {"stops": ArrayType(StructType([StructField("at", TimestampType())]), containsNull=False)},
            "'stops array<struct<at:timestamp>>': NOT NULL and COMMENT are not supported inside a column. Valid: stops ARRAY<",
        ),
    ],
)
def test_c2_a_wrong_column_beside_a_schema_is_named_with_what_is_valid(types, words):
    with pytest.raises(ConfigurationError) as raised:
        chosen(schema(SCHEMA), **types)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            "id BIGINT, at TIME",
            "is 'at TIME': Spark cannot read a column of type TIME. Valid: at STRING, or a schema without",
        ),
        ("a STRUCT<b: ARRAY<TIME>>", "is 'a.b[] TIME': Spark cannot read a column of type TIME. Valid: a.b[] STRING"),
        ("infer", "before it reads; recordpublisher tail STREAM --no-follow --format schema prints the columns"),
        ("id BIGINTT", "'BIGINTT' was found"),
        ("Stream BIGINT", "its name differs from that of column 'Stream' in case only"),
    ],
)
def test_c2_a_schema_without_columns_for_spark_is_refused_when_the_stream_is_loaded(columns, words):
    source = KinesisSource({"stream": "orders", "aws.region": "eu-west-1", "flink.deserializer.schema": columns})
    with pytest.raises(ConfigurationError) as raised:
        source.schema()
    assert words in str(raised.value)


def test_executors_get_the_content_of_schema_files_and_not_their_paths(tmp_path):
    place = {"type": "record", "name": "Place", "fields": [{"name": "country", "type": "string"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "place", "type": "Place"}]
    (tmp_path / "Place.avsc").write_text(json.dumps(place))
    (tmp_path / "order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    (tmp_path / "order.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    given = {"stream": "orders", "aws.region": "eu-west-1"}
    of_avro = {"flink.deserializer": "avro", "flink.deserializer.avro.schema": str(tmp_path / "Place.avsc")}
    sources = [
        KinesisSource({**given, **of_avro, "flink.deserializer.schema": str(tmp_path / "order.avsc")}),
        KinesisSource({**given, "Flink.Deserializer.Schema": str(tmp_path / "order.json")}),
    ]
    for path in tmp_path.iterdir():
        path.unlink()
    avro, plain = (source.schema() for source in sources)
    assert (avro.names[:2], plain.names[:1]) == (["id", "place"], ["id"])
    with pytest.raises(ConfigurationError, match="No such file"):
        KinesisSource({"stream": "orders", "flink.deserializer.schema": str(tmp_path / "order.avsc")})
