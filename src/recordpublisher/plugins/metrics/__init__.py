"""Metrics leave the process: exporters, and the one page of all subtasks of a machine. Start at `export.py`."""
