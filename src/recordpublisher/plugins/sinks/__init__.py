"""The sinks: callback, memory, reactive, files (JSON lines, Parquet), SQL and Kinesis. Start at `callback.py`, the simplest.

The contract of a sink is `recordpublisher.fetcher.sink.Sink`.
"""
