"""Floor 1: one shard, batches to values."""
