"""Mode CONTINUOUS (experimental): one fetcher in the process that plans the query reads into a write-ahead log, batches take files from it.

Start in `stream_reader.py`, what Spark calls; `wal_writer.py` has the rule that makes it exactly once.
"""
