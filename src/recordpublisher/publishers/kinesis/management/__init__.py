"""The calls of people and tools: list, describe, create and reshard streams. A job needs none of them. Start at `client.py`."""
