"""Micro-batch DataFrames from a DataFetcher beside the driver. Start at `spark_sink.py`."""
