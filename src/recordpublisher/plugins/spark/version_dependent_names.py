"""Names that only some versions of PySpark have.

From PySpark 4.2 on, a source receives the query's current offset, and is notified of Trigger.AvailableNow.
"""

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError:
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object

HAS_START = ReadLimit is not object
"""Whether Spark passes the current offset and a limit of rows when it asks a source for the next offset."""

__all__ = [
    "HAS_START", "DataSourceStreamArrowWriter", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow",
]  # fmt: skip

if hasattr(datasource, "DataSourceStreamArrowWriter"):
    DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc, no-redef] # pyspark is not typed here
        """The writer of a streaming query.

        PySpark 4.0 has no such class, but passes Arrow batches to any DataSourceArrowWriter, hence both bases.
        """
