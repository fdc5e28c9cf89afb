"""Layer 2 reads many shards: it orders their records, tracks event time, and keeps the job's state.

Start at `shard_fetcher.py`. The ports are `sink.py`, `conditional_store.py`, `checkpoints/shard_starts.py` and
`watermarks.py`.
"""
