"""The options of a job that reads: parsed and checked; nothing is opened. Start at `spark_options.py`."""
