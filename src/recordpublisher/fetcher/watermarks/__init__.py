"""Event time over the shards of a subtask: alignment, stragglers, reshards, and the sink's watermark. Start at `alignment.py`."""
