"""Decoding responses and encoding requests. Start at `sdk_parser_override.py`."""
