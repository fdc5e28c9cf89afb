"""Stores: one conditional store with a back end for each kind of location; state, claims and write-once objects use it.

The port is `fetcher/conditional_store.py`. The back ends are `folder.py`, `s3.py`, `dynamodb.py`, `object_storage.py` and `sql_store.py`.
"""
