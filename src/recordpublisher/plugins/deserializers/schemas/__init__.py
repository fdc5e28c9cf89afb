"""Schemas without a Python class: `flink.deserializer.schema` becomes a msgspec Struct, as if it had been written in Python."""
