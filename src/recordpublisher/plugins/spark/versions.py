"""What only some versions of PySpark have. Only a query that reads needs 4.2: there a source is told where it stands."""

from pyspark import __version__
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from recordpublisher.publishers.errors import ConfigurationError

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError:
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object

__all__ = [
    "DataSourceStreamArrowWriter", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow", "check_reads_queries",
]  # fmt: skip

if hasattr(datasource, "DataSourceStreamArrowWriter"):
    DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc, no-redef] # pyspark is not typed here
        """The writer of a query: PySpark 4.0 passes Arrow batches to whatever is a DataSourceArrowWriter."""


def check_reads_queries() -> None:
    """Raises: ConfigurationError where this PySpark cannot read a stream in a query."""
    if ReadLimit is object:
        reason = "a query that reads needs a newer one, spark.read and all writing do not"
        raise ConfigurationError("pyspark", __version__, "4.2 or newer", reason=reason)
