"""Layer 2: many shards: order, time, state. Start at `data_fetcher.py`; the ports are `sink.py`, `checkpoints/store.py` and `coordination/watermark_tracker.py`."""
