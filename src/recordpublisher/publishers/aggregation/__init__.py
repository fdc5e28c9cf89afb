"""The KPL's aggregation format. `deaggregation.py` turns responses into user records; `kpl_format.py` reads and writes the format."""
