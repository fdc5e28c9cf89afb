"""Sinks that write into tables of Delta Lake and Iceberg, each record once. Start at `sink.py`."""
