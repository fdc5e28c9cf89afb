"""Listeners for `spark.streams.addListener`. They run in the driver, and receive events that Spark does not report to a source."""
