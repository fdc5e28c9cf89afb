"""Tracks which shards exist, which of them this worker reads, and how far each was read. Start at `shard_table.py`."""
