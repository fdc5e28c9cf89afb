"""Layer 3: adapters (sinks, stores, Spark), and the code that puts the layers together to jobs. Start at `runtime/data_fetcher.py`."""
