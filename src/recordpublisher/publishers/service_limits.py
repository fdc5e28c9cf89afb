"""Limits of Kinesis Data Streams, for readers, sink, Spark and the embedded endpoint. A test names the source of each."""

# GetRecords, for each shard
GET_RECORDS_CALLS_PER_SECOND = 5
GET_RECORDS_RECORDS = 10_000
"""The largest Limit of a call."""
GET_RECORDS_BYTES = 10 * 2**20
"""The largest response, keys counted."""
READ_BYTES_PER_SECOND = 2 * 2**20
REFUSED_SECONDS_AFTER_LARGEST_RESPONSE = 5.0
"""How long reads are refused after a response of 10 MiB, whether it arrived or not."""
REFUSED_SECONDS = 1.0
"""How long reads are refused otherwise: for the rest of a second."""
ITERATOR_SECONDS = 300.0
"""How long a shard iterator is valid."""

# SubscribeToShard, for each consumer and shard
SUBSCRIPTION_SECONDS = 300.0
"""After this long a subscription ends."""
SECONDS_BETWEEN_SUBSCRIPTIONS = 5.0
"""From a success on, calls are refused with ResourceInUseException; later ones take the subscription over."""
SECONDS_BETWEEN_SUBSCRIBE_CALLS = 1.0

# ListShards
NEXT_TOKEN_SECONDS = 300.0

# writing, for each shard and call
WRITE_RECORDS_PER_SECOND = 1_000
WRITE_BYTES_PER_SECOND = 2**20
PUT_RECORDS_RECORDS = 500
PUT_RECORDS_BYTES = 10 * 2**20
"""Data and partition keys of one call."""
DEFAULT_RECORD_BYTES = 2**20
"""The largest record, its key counted, unless the stream has another MaxRecordSizeInKiB."""
LARGEST_RECORD_BYTES = 10 * 2**20
"""The most that MaxRecordSizeInKiB can be."""
PARTITION_KEY_CHARACTERS = 256
