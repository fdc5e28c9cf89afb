"""ELASTIC assignment: a fetcher reads the shards whose leases its worker has. Start at `leased_ownership.py`.

`leased_shards.py` begins and stops shards while the fetcher runs, `worker_lives.py` takes part in the group of processes.

A property of a worker that others plan with goes from `publishers/properties/groups/` into `fetcher/leases/lease_settings.py`, and from
there by `fetcher/leases/worker.py` into `fetcher/leases/documents/worker_record.py`. The plan, and which free shards a worker may take,
is in `fetcher/leases/planning/group_view.py`; people see it by `plugins/groups/group_status.py` and `cli/job_commands/group.py`.
"""
