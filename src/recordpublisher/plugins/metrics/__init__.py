"""Exports metrics from the process: exporters, and one page for all subtasks of a machine. Start at `export.py`."""
