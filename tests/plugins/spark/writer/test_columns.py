"""Column names ignore case, other columns are ignored; errors name column, type and what is valid."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.rows_to_records import ColumnError, WriteColumns, columns_of


def test_column_names_ignore_case_and_other_columns_are_ignored():
    fields = [("shardId", "string"), ("DATA", "binary"), ("partitionkey", "varchar(20)"), ("explicitHashKey", "string")]
    assert columns_of(fields, "out") == WriteColumns(data=1, partition_key=2, explicit_hash_key=3)


def test_the_option_stream_overrides_the_column():
    fields = [("stream", "string"), ("data", "string")]
    assert columns_of(fields, "copy").stream is None
    assert columns_of(fields, None).stream == 0


@pytest.mark.parametrize(
    ("fields", "stream", "words"),
    [
        ([("value", "binary")], "out", r"column 'data' is missing. Valid: BINARY or STRING.*given: value"),
        ([("data", "int")], "out", r"column 'data' has the type INT. Valid: BINARY or STRING"),
        ([("data", "string"), ("partitionKey", "bigint")], "out", r"'partitionKey' has the type BIGINT. Valid: STRING"),
        ([("data", "string"), ("explicitHashKey", "decimal(38,0)")], "out", r"has the type DECIMAL\(38,0\)"),
        (
            [("data", "string"), ("partition_key", "string")],
            "out",
            r"column 'partition_key' would be ignored. Valid: 'partitionKey' if that column is meant",
        ),
        (
            [("data", "string"), ("Data", "string")],
            "out",
            r"column 'data' exists more than once, as data and Data. Valid: one column",
        ),
        ([("data", "string")], None, r"column 'stream' is missing. .*or set the option 'stream'"),
    ],
)
def test_c2_a_wrong_column_is_named_with_its_type_and_what_is_valid(fields, stream, words):
    with pytest.raises(ColumnError, match=words):
        columns_of(fields, stream)
