"""The sinks: callback (for each batch), map (for each record), memory, reactive, files (JSON lines, Parquet), SQL and Kinesis.

Start at `callback.py`, the simplest.

The contract of a sink is `recordpublisher.fetcher.sink.Sink`.
"""
