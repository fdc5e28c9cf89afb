"""Shows and controls a group of workers (ELASTIC) from outside. Start at `group_status.py`."""
