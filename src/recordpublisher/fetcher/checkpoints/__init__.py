"""Snapshots: their format, where they are stored, and how a job is restored from them. Start at `snapshot_format.py`."""
