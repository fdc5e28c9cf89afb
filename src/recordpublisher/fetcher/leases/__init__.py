"""Elastic assignment: workers join and leave a running job, and share its shards by leases. Start at `worker.py`.

The documents of a group are in `lease_table.py`, `worker_record.py` (one for each worker) and `position_documents.py`; `group_store.py`
reads and writes them. `planning.py` decides which worker should have each shard. Ids such as E5 name the rules in
docs/decisions/elastic.md.

To add a field of a lease, see `Lease`. To show it to people, add it to `ShardStatus` and `SHARD_COLUMNS` in `plugins/group_control.py`.
"""
