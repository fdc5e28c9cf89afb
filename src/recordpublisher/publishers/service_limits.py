"""Limits of Kinesis Data Streams, for readers, the sink, Spark and the embedded endpoint. A test names the source of each limit."""

# GetRecords, for each shard
GET_RECORDS_CALLS_PER_SECOND = 5
GET_RECORDS_RECORDS = 10_000
"""The largest Limit of one GetRecords call (records)."""
GET_RECORDS_BYTES = 10 * 2**20
"""The largest response of GetRecords, including partition keys (bytes)."""
READ_BYTES_PER_SECOND = 2 * 2**20
REFUSED_SECONDS_AFTER_LARGEST_RESPONSE = 5.0
"""How long the service refuses reads after a response of 10 MiB, even if the response did not arrive (seconds)."""
REFUSED_SECONDS = 1.0
"""How long the service refuses reads at most after another limit was exceeded (seconds): for the rest of the current second."""
ITERATOR_SECONDS = 300.0
"""How long a shard iterator is valid (seconds)."""

# SubscribeToShard, for each consumer and shard
SUBSCRIPTION_SECONDS = 300.0
"""How long a subscription lasts (seconds)."""
SECONDS_BETWEEN_SUBSCRIPTIONS = 5.0
"""How long after a successful SubscribeToShard the service refuses further ones with ResourceInUseException (seconds).

After that, a further call takes over the subscription.
"""
SECONDS_BETWEEN_SUBSCRIBE_CALLS = 1.0

# ListShards
NEXT_TOKEN_SECONDS = 300.0

# Writing, for each shard and call
WRITE_RECORDS_PER_SECOND = 1_000
WRITE_BYTES_PER_SECOND = 2**20
PUT_RECORDS_RECORDS = 500
PUT_RECORDS_BYTES = 10 * 2**20
"""The most data and partition keys of one PutRecords call (bytes)."""
DEFAULT_RECORD_BYTES = 2**20
"""The largest record, including its key (bytes), if the stream's MaxRecordSizeInKiB was not changed."""
LARGEST_RECORD_BYTES = 10 * 2**20
"""The largest record for which MaxRecordSizeInKiB can be set (bytes)."""
PARTITION_KEY_CHARACTERS = 256
