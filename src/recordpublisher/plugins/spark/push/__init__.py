"""SparkSink: a DataFetcher in the driver's Python process gives micro-batch DataFrames to a callback. Start at `spark_sink.py`."""
