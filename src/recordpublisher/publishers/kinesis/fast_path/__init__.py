"""The fast path of frequent calls, which uses our own signing and HTTP/1.1 client instead of the SDK's. Start at `call.py`."""
