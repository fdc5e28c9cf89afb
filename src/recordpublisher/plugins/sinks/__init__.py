"""The sinks that take the records of a job: callback, map, memory, reactive, files, tables, SQL and Kinesis.

Start at `callback.py`, the simplest: it calls a function for each batch. The map sink calls one for each record. The file sinks write JSON
lines and Parquet.

The contract of a sink is `recordpublisher.fetcher.sink.Sink`.
"""
