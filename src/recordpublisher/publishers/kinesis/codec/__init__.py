"""Bytes on the wire to typed answers, and back. Start at `sdk_parser.py`."""
