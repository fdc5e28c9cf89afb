"""Sinks that write each record once into a table of Delta Lake or Iceberg. Start at `sink.py`."""
