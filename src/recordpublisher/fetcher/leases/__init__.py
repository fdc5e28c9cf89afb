"""Elastic assignment: workers join and leave a running job, and share its shards by leases. Start at `worker.py`.

`group_store.py` and `lease_table.py` have the documents of a group: the lease table, a record for each worker, and the positions.
`planning.py` decides which worker should have each shard. Ids such as E5 name the rules in docs/decisions/elastic.md.
"""
