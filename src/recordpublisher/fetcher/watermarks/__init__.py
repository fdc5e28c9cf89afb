"""Event time over the shards of a subtask. Start at `alignment.py`."""
