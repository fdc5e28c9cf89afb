"""Layer 2: many shards of one subtask: order, event time, exact state. Start at `data_fetcher.py`."""
