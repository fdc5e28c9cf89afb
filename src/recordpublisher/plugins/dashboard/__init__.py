"""Shows the state of a job at one moment on a page. The state is read from the running job or from its stored positions.

Start at `snapshots.py`. The fields of a snapshot are in `plugins/lag/job_snapshot.py`.
"""
