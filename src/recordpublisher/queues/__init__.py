"""A job that reads a queue: each record is acknowledged when it is safe. It has no shards, positions, order or time.

- `job.py`: the job, which is where to start: what runs, and how a run ends.
- `receivers.py`: how many receivers call, and the way of a record from its receipt to the sink.
- `in_flight.py`: what was received and is not done, and the calls that acknowledge, prolong and release.
- `view.py`: metrics, progress, readiness and alarms.
"""
