"""Deserializers for formats other than bytes, text and JSON, the decompression of payloads, and schemas without a Python class.

Start at `avro.py`, or at `schemas.py` for `flink.deserializer.schema`.
"""
