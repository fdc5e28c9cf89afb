"""Layer 2: many shards: order, time, state.

Start at `subtask_fetcher.py`. The ports are `sink.py`, `conditional_store.py`, `checkpoints/snapshot_store.py` and
`coordination/watermark_tracker.py`.
"""
