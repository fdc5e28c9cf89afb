"""The data model: streams, shards, records, consumers, subscriptions. Start at account.py."""
