"""Snapshots: made, kept, restored. Start at `snapshot.py`."""
