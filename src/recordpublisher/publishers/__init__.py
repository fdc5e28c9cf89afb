"""The lowest layer: reads one shard, and turns the service's bytes into batches of records. Start at `base.py`."""
