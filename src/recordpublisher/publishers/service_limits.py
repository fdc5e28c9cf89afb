"""Limits of Kinesis Data Streams, for readers, sink, Spark and the embedded endpoint. A test names the source of each limit."""

# GetRecords, for each shard
GET_RECORDS_CALLS_PER_SECOND = 5
GET_RECORDS_RECORDS = 10_000
"""The largest Limit of a call (records)."""
GET_RECORDS_BYTES = 10 * 2**20
"""The largest response, including its partition keys (bytes)."""
READ_BYTES_PER_SECOND = 2 * 2**20
REFUSED_SECONDS_AFTER_LARGEST_RESPONSE = 5.0
"""After a response of 10 MiB, reads are refused for this time, even if the response did not arrive (seconds)."""
REFUSED_SECONDS = 1.0
"""If another limit was exceeded, reads are refused for at most this time (seconds): the rest of the current second."""
ITERATOR_SECONDS = 300.0
"""How long a shard iterator is valid (seconds)."""

# SubscribeToShard, for each consumer and shard
SUBSCRIPTION_SECONDS = 300.0
"""How long a subscription lasts (seconds)."""
SECONDS_BETWEEN_SUBSCRIPTIONS = 5.0
"""After a successful call, further calls are refused for this time with ResourceInUseException (seconds). Later calls take over the
subscription.
"""
SECONDS_BETWEEN_SUBSCRIBE_CALLS = 1.0

# ListShards
NEXT_TOKEN_SECONDS = 300.0

# Writing, for each shard and call
WRITE_RECORDS_PER_SECOND = 1_000
WRITE_BYTES_PER_SECOND = 2**20
PUT_RECORDS_RECORDS = 500
PUT_RECORDS_BYTES = 10 * 2**20
"""The most data and partition keys of one call (bytes)."""
DEFAULT_RECORD_BYTES = 2**20
"""The largest record, including its key (bytes), unless the stream has another MaxRecordSizeInKiB."""
LARGEST_RECORD_BYTES = 10 * 2**20
"""The largest record that MaxRecordSizeInKiB can allow (bytes)."""
PARTITION_KEY_CHARACTERS = 256
