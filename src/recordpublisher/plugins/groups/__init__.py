"""Shows and controls a group of workers (GROUP) from outside. Start at `group_status.py`."""
