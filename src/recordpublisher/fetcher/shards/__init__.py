"""Tracks which shards exist, which of them this worker owns, and the state of each. Start at `shard_table.py`."""
