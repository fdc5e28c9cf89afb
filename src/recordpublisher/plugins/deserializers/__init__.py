"""Deserialisers for formats other than bytes, text and JSON, and the decompression of payloads. Start at `avro.py`."""
