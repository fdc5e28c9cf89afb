"""Mode CONTINUOUS (experimental): a fetcher in the process that plans the query writes rows into a write-ahead log (WAL), and micro-batches
read them from there.

The log is this library's own, at `metadataLocation`; it is not Spark's log of offsets. The mode is not Spark's `Trigger.Continuous` either:
queries still run as micro-batches. Start at `stream_reader.py`, which Spark calls; `wal_writer.py` has the rule that makes it exactly once.
"""
