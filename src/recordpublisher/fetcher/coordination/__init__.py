"""The global watermark of a group of subtasks: port, rules, messages. Start at `tracker.py`."""
