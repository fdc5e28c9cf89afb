"""The KPL's aggregation format, both directions. Start at `kpl_format.py`."""
