"""The columns of a read, as Spark is told: without pyarrow, since the process that tells them builds none."""

from __future__ import annotations

SPARK_SCHEMA = (
    "stream STRING, shardId STRING, partitionKey STRING, explicitHashKey STRING, sequenceNumber STRING, subSequenceNumber LONG, "
    "approximateArrivalTimestamp TIMESTAMP, eventTime TIMESTAMP, data BINARY"
)
