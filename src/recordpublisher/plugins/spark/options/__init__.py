"""The options of a job that reads: parsed and checked; nothing is opened. Start at `spark_options.py`."""

from recordpublisher.publishers.properties.property_types import PropertyGroup

SPARK = PropertyGroup("Spark")
