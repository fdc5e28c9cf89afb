"""The global watermark of the shards of a process: the tracker port, and its rules. Start at `watermark_tracker.py`."""
