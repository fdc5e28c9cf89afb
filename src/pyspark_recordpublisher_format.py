"""The same source as `format("recordpublisher")`, for Sparks that have another "kinesis". Spark registers one source for each module."""

from recordpublisher.plugins.spark.data_source import KinesisSource


class DefaultSource(KinesisSource):
    """See KinesisSource."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "recordpublisher"
