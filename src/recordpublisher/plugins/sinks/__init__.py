"""The sinks: callback (called for each batch), map (called for each record), memory, reactive, files (JSON lines, Parquet), tables, SQL and
Kinesis.

Start at `callback.py`, the simplest.

The contract of a sink is `recordpublisher.fetcher.sink.Sink`.
"""
