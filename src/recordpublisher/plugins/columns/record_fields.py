"""Declares the columns of a record for Spark, Arrow, Parquet and lake tables.

This module does not import pyarrow, because processes of Spark that only check options import it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from recordpublisher.publishers.records import RecordBatch


DATA = "data"


class RecordField(NamedTuple):
    """A column of records.

    - `spark_type`: STRING, LONG, TIMESTAMP (from epoch ms) or BINARY. Arrow's type follows from it.
    - `taken`: returns the column's value of each record in a batch. For a shared column, it returns the one value and the number of
      records.
    - `is_shared`: whether all records of a batch have the same value.
    - `is_distinct`: whether nearly every record has a value of its own.
    """

    name: str
    spark_type: str
    taken: Callable[[RecordBatch], Any]
    is_shared: bool = False
    is_distinct: bool = True


RECORD_FIELDS = (
    RecordField("stream", "STRING", lambda batch: (batch.stream, len(batch)), is_shared=True, is_distinct=False),
    RecordField("shardId", "STRING", lambda batch: (batch.shard_id, len(batch)), is_shared=True, is_distinct=False),
    RecordField("partitionKey", "STRING", attrgetter("partition_keys"), is_distinct=False),
    RecordField("explicitHashKey", "STRING", attrgetter("explicit_hash_keys")),
    RecordField("sequenceNumber", "STRING", attrgetter("sequence_numbers")),
    RecordField("subSequenceNumber", "LONG", attrgetter("sub_sequence_numbers")),
    RecordField("approximateArrivalTimestamp", "TIMESTAMP", attrgetter("arrival_millis")),
    RecordField("eventTime", "TIMESTAMP", attrgetter("event_time_column")),
    RecordField(DATA, "BINARY", attrgetter("data")),
)
SPARK_SCHEMA = ", ".join(f"{field.name} {field.spark_type}" for field in RECORD_FIELDS)
