"""The SQL sink, which writes rows and positions in one transaction.

- `sink.py`: the sink, which is where to start, and the batches and rows that wait for a checkpoint.
- `rows.py`: a record as a row, the column of each field, and the conversion of its values.
- `target_table.py`: the table, and the insert of rows; `latest_by_key.py` and `newest_records.py`: a table with the latest row of each key.
"""

from recordpublisher.plugins import databases  # noqa: F401 - imported first, because its error names the missing extra

from .sink import SqlSink

__all__ = ["SqlSink"]
