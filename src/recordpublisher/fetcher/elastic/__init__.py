"""A group: a fetcher reads the shards whose leases its worker holds. Start at `leased_ownership.py`.

`leased_shards.py` begins and stops shards while the fetcher runs, `worker_lives.py` takes part in the group of processes.

A property of a worker that other workers plan with is read from `publishers/properties/groups/` into `fetcher/leases/lease_settings.py`.
`fetcher/leases/worker.py` writes it into `fetcher/leases/documents/group_store.py`. `fetcher/leases/planning.py` makes the
plan, and decides which free shards a worker may take. `plugins/groups.py` and `cli/commands/group.py` show it to people.
"""
