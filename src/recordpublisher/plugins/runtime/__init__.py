"""Builds `rp.DataFetcher`, `rp.stream` and `rp.consume` (`data_fetcher.py`), and runs jobs of properties files (`supervisor.py`)."""
