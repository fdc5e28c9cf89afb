"""ELASTIC assignment: a fetcher reads the shards whose leases its worker has. Start at `leased_ownership.py`.

`leased_shards.py` begins and stops shards while the fetcher runs, `worker_lives.py` takes part in the group of processes.
"""
