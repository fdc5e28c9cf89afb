"""What waits for each shard, and which shard that is. Start at `shard_queue.py`."""
