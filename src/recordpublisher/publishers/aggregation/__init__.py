"""The KPL's aggregation format, for reading and writing. Start at `kpl_format.py`."""
