"""ELASTIC assignment: a fetcher reads the shards whose leases its worker has. Start at `leased_ownership.py`.

`leased_shards.py` begins and stops shards while the fetcher runs, `worker_lives.py` takes part in the group of processes.

A property of a worker that others plan with goes from `publishers/properties/groups/` through `plugins/host/elastic_group.py`,
`worker_lives.py` and `fetcher/leases/worker.py` into `fetcher/leases/documents/worker_record.py`; the plan reads it in
`fetcher/leases/planning/group_view.py` and `fetcher/leases/planning/lease_balance.py`, and people see it by
`plugins/groups/group_status.py` and `cli/job_commands/group.py`.
"""
