"""SparkSink: a DataFetcher beside the driver gives micro-batch DataFrames to a callback. Start at `spark_sink.py`."""
