"""Which shards a fetcher reads. Start at `shard_ownership.py`; the other kind, by leases, is in `fetcher/elastic`."""
