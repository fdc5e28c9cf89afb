"""PutRecords calls: what goes into the next one, and what its results mean for each record. Start at `request.py`."""
