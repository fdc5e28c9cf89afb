"""Builds `rp.DataFetcher`, `rp.stream` and `rp.consume` from properties, and runs jobs as processes. Start at `data_fetcher.py`."""
