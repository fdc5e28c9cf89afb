"""The schema of a read, as Spark writes it. Without pyarrow: processes that only check options import this."""

SPARK_SCHEMA = (
    "stream STRING, shardId STRING, partitionKey STRING, explicitHashKey STRING, sequenceNumber STRING, subSequenceNumber LONG, "
    "approximateArrivalTimestamp TIMESTAMP, eventTime TIMESTAMP, data BINARY"
)
