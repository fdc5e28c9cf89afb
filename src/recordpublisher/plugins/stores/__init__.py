"""One conditional store with a back end for each kind of place; state, claims and objects stand on it. Start at `conditional_store.py`."""
