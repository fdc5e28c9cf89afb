"""Stores for positions, the documents of groups of workers, and Spark's claims. There is one for each kind of location.

- `fetcher/conditional_store.py` has the interface of a store.
- `back_ends.py` lists the kinds of locations, with the URIs and the class of each.
- `by_location.py` opens the store of a location.
- `spark_read_claims.py` keeps the claims of Spark's tasks in any store.
"""
