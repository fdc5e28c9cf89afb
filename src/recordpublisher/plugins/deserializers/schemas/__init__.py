"""Schemas without a Python class: `flink.deserializer.schema` is turned into a msgspec Struct, as if it were written in Python."""
