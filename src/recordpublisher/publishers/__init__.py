"""Layer 0, which reads one shard, from the bytes of the service to batches of records. Start at `base.py`."""
