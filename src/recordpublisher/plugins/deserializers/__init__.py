"""Formats of payloads besides bytes, text and JSON, and decompression before any of them. Start at `avro.py`."""
