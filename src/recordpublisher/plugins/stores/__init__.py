"""Stores: one conditional store with a back end for each kind of location.

Positions, groups of workers and Spark's claims are stored in it.

The port is `fetcher/conditional_store.py`. `back_ends.py` lists the back ends, with the URIs and the class of each, and `by_location.py`
opens the store of a location. `spark_read_claims.py` keeps the claims of Spark's tasks in any of them.
"""
