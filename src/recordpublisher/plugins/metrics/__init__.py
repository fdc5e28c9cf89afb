"""Exports metrics from the process: exporters, and one page for all workers of a machine. Start at `export.py`."""
