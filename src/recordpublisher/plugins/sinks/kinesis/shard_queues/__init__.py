"""Records that wait to be sent, by shard, and the map from a key to its shard. Start at `shard_queue.py`."""
