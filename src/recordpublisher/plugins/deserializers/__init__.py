"""Formats of payloads that need a library: decompression. Start at `decompression.py`."""
