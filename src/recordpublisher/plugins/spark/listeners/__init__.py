"""Listeners for `spark.streams.addListener`: they run in the driver, and learn what Spark does not tell a source."""
