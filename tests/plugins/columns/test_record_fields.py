"""The columns of a record, declared once for Spark, Arrow and the page that lists them."""

import re

from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.columns.record_fields import RECORD_FIELDS, SPARK_SCHEMA

from processes.command_line import ROOT


def test_spark_and_arrow_have_the_declared_columns_in_their_order():
    names = [field.name for field in RECORD_FIELDS]

    assert [column.split(" ")[0] for column in SPARK_SCHEMA.split(", ")] == names == RECORD_SCHEMA.names
    assert SPARK_SCHEMA.endswith(
        "subSequenceNumber LONG, approximateArrivalTimestamp TIMESTAMP, eventTime TIMESTAMP, data BINARY"
    )


def test_the_page_of_spark_lists_every_column():
    page = (ROOT / "docs/spark/README.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("Columns: ")]

    assert re.findall(r"`(\w+)`", line) == [field.name for field in RECORD_FIELDS]
