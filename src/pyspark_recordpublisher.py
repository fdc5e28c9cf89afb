"""What Spark looks for: it imports every top-level module named `pyspark_*` and registers its `DefaultSource`."""

from recordpublisher.plugins.spark.data_source import KinesisSource as DefaultSource

__all__ = ["DefaultSource"]
