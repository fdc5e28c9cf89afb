"""The documents that a group stores: the lease table, the workers' records and their positions. `group_store.py` reads and writes them."""
