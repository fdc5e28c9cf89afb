"""The columns that a user's schema chooses."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from recordpublisher.plugins.columns.record_columns import arrow_columns
from recordpublisher.plugins.spark.arrow_rows import ArrowRows, chosen_columns
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


def chosen(**types):
    return chosen_columns(StructType([StructField(name, type_()) for name, type_ in types.items()]))


def test_only_the_chosen_columns_are_built_in_their_order():
    schema = chosen(data=BinaryType, eventTime=TimestampType, subSequenceNumber=LongType, shardId=StringType)
    rows = arrow_columns(RecordBatch(Shard("s", "a"), [UserRecord(b"x", "1", 1.0, "k")]), schema=schema)
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
            "is 'key': there is no such column; here it is partitionKey. Valid: stream STRING",
        ),
        ({"streamName": StringType}, "there is no such column; here it is stream. Valid: "),
        ({"Value": BinaryType}, "there is no such column; here it is data. Valid: "),
        ({"colour": StringType}, "there is no such column. Valid: stream STRING, shardId STRING"),
    ],
)
def test_c2_a_wrong_column_is_named_with_what_is_valid(types, words):
    with pytest.raises(ConfigurationError) as raised:
        chosen(**types)
    assert words in str(raised.value)
