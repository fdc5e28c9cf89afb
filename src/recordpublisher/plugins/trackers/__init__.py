"""Watermark trackers for subtasks in several processes or on several machines. Start at `tcp/client.py`."""
