"""Layer 1, which turns the batches of one shard into values, event times and watermarks. Start at `shard_consumer.py`."""
