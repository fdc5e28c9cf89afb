"""The fetcher of one worker in a group of processes: it reads the shards whose leases its worker holds. Start at `leased_ownership.py`.

`leased_ownership.py` joins and leaves the group, and `leased_shards.py` begins and stops shards while the fetcher runs. `alone_worker.py`
is for a job without a group.

To add a property of a worker that other workers consider: declare it in `publishers/properties/job_properties.py`, read it in
`fetcher/leases/lease_settings.py`, let `fetcher/leases/worker.py` write it into the worker's record
(`fetcher/leases/worker_record.py`), and use it in `fetcher/leases/planning.py`, which decides which worker should have each shard.
`plugins/group_control.py` and `cli/commands/group.py` show it to people.
"""
