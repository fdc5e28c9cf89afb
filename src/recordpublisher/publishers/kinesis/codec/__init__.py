"""Decodes responses and encodes requests. Start at `response_decoders.py`."""
