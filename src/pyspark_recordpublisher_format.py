"""The same source as `format("recordpublisher")`, for Sparks that have another "kinesis". Spark registers one source for each module."""

from recordpublisher.plugins.spark.data_source import KinesisSource


class DefaultSource(KinesisSource):
    """The data source `KinesisSource` under the name "recordpublisher"."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "recordpublisher"
