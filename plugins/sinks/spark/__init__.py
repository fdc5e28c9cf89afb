"""Spark: the source, the batch sink and the writer."""
