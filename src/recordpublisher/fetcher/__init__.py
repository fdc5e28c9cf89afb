"""Floor 2: many shards: order, time, state."""
