"""The data model: streams, shards, records, consumers, subscriptions. Start reading in account.py."""
