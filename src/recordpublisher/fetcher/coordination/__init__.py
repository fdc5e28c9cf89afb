"""The global watermark of a group of subtasks: tracker port, group rules, coordinator, heartbeats. Start at `watermark_tracker.py`."""
