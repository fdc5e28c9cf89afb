"""The composition root: `rp.DataFetcher`, `rp.stream`, `rp.consume`. Start at `data_fetcher.py`."""
