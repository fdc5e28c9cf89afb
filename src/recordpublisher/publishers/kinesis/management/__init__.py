"""The calls of people and tools, which list, describe, create and reshard streams. A job needs none of them. Start at `client.py`."""
