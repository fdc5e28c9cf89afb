"""Formats of payloads besides bytes, text and JSON: Avro, Protobuf, and decompression before any of them. Start at `avro.py`."""
