"""PutRecords: what goes into the next call, and what comes of its answer. Start at `request.py`."""
