"""Layer 1: one shard: from batches of bytes to values, event times and watermarks. Start at `shard_consumer.py`."""
