"""The data: streams, shards, records, consumers, subscriptions. Start at `account.py`."""
