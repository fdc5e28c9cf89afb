"""Layer 3: adapters, and what puts the layers together: sinks, stores, Spark, jobs. Start at `runtime/data_fetcher.py`."""
