"""Decides which shards a fetcher reads. Start at `shard_ownership.py`. Ownership by leases is in `fetcher/elastic`."""
