"""A group: a fetcher reads the shards whose leases its worker holds. Start at `leased_ownership.py`.

`leased_ownership.py` also joins and leaves the group of processes; `leased_shards.py` begins and stops shards while the fetcher
runs.

A property of a worker that other workers consider in their plans is read from `publishers/properties/job_properties.py` into
`fetcher/leases/lease_settings.py`. `fetcher/leases/worker.py` writes it into `fetcher/leases/group_store.py`.
`fetcher/leases/planning.py` makes the plan, and decides which free shards a worker may take. `plugins/groups.py` and
`cli/commands/group.py` show it to people.
"""
