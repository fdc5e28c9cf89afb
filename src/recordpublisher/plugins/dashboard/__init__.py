"""What a person sees of a job at one moment, read from the running job or from its stored positions.

Start at `live_snapshots.py`. What a snapshot holds is in `plugins/lag/job_snapshot.py`.
"""
