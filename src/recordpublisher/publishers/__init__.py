"""Floor 0: one shard, bytes to batches."""
