"""Frequent calls without the SDK's HTTP client: signing and HTTP/1.1. Start at `call.py`."""
