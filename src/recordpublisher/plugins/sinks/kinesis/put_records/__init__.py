"""PutRecords calls: which records go into the next call, and what its results mean for each record. Start at `request.py`."""
