"""A group of workers (ELASTIC) as seen and steered from outside. Start at `group_status.py`."""
