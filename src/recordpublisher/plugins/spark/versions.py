"""What only some versions of PySpark have. From 4.2 on a source is told where its query stands, and about Trigger.AvailableNow."""

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError:
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object

HAS_START = ReadLimit is not object
"""Whether a source that is asked for an offset is told after which one, and how many rows."""

__all__ = [
    "HAS_START", "DataSourceStreamArrowWriter", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow",
]  # fmt: skip

if hasattr(datasource, "DataSourceStreamArrowWriter"):
    DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc, no-redef] # pyspark is not typed here
        """The writer of a query: PySpark 4.0 passes Arrow batches to whatever is a DataSourceArrowWriter."""
