"""Which shards there are, which this subtask owns, and the state of each. Start at `shard_table.py`."""
