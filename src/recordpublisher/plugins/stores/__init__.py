"""Stores: one conditional store with a back end for each kind of location.

Positions, groups of workers and Spark's claims are stored in it.

The port is `fetcher/conditional_store.py`. The back ends are `folder_store.py`, `s3_store.py`, `dynamodb_store.py`, `google_azure_store.py`
and `sql_store.py`; `by_location.py` finds the one for a location. `read_claim_store.py` keeps the claims of Spark's tasks in any of them.
"""
