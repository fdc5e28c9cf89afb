"""Reads streams as data frames: `rp.read_arrow`, `rp.read_polars` and `rp.read_pandas`. Start at `read.py`."""
