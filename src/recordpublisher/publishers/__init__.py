"""Layer 0. Reads one shard, and turns the service's bytes into batches of records. Start at `base.py`."""
