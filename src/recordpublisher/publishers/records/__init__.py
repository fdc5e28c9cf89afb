"""RecordBatch and its records, which publishers produce and every layer above consumes."""

from .batch import RECORD_OVERHEAD_BYTES, PoisonedRecord, Record, RecordBatch, V, V_co, behind_after
from .user_records import COLUMNS, MAGIC, RecordColumns, UserRecord, columns_of, to_millis

__all__ = [
    "COLUMNS", "MAGIC", "RECORD_OVERHEAD_BYTES", "PoisonedRecord", "Record", "RecordBatch", "RecordColumns", "UserRecord", "V", "V_co",
    "behind_after", "columns_of", "to_millis",
]  # fmt: skip
