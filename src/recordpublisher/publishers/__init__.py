"""Layer 0: one shard, from the bytes of the service to batches of records. Start at `base.py`."""
