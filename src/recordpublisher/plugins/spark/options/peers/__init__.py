"""Options in the spelling of other Kinesis connectors for Spark. Start at `option_table.py`."""
