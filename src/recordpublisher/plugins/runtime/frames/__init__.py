"""`rp.read_arrow` and `rp.read_polars`. Start at `read.py`."""
