"""Options as other Kinesis connectors for Spark spell them. Start at `option_table.py`."""
