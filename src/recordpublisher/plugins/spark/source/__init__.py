"""Micro-batch reading: offsets, claims, tasks. Start at `batch_planner.py`."""
