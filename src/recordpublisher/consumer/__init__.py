"""Layer 1: one shard: batches to values, event times, watermarks. Start at `shard_consumer.py`."""
