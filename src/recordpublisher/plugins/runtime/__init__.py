"""`rp.DataFetcher`, `rp.stream` and `rp.consume`, built from properties; jobs as processes. Start at `data_fetcher.py`."""
