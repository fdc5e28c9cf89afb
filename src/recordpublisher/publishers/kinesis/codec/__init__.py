"""Decoding responses and encoding requests. Start at `response_decoders.py`."""
